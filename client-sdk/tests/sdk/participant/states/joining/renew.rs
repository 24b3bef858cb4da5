//! A renewal is for a new key. The key is stored before the request, used after the certificate is stored, and waits for sessions.

use std::sync::Arc;

use client_sdk::journal::{Journal as _, MemoryJournal};
use client_sdk::participant::snapshot;
use client_sdk::{Participant, ParticipantError};
use wire::Timestamp;
use wire::problem::ProblemType;

use crate::support::cohort::{Hub, TODAY};
use crate::support::device::{check_sums, cohort, finish, refusals};
use crate::support::trainers::Nudge;
use crate::support::{Coordinator, Fault};

fn participant(coordinator: &Coordinator, journal: &Arc<MemoryJournal>) -> Participant {
    with_token(coordinator, journal, "token")
}

#[expect(clippy::unwrap_used, reason = "a test")]
fn with_token(coordinator: &Coordinator, journal: &Arc<MemoryJournal>, token: &str) -> Participant {
    coordinator.app().enrollment_token(token).journal(Arc::clone(journal)).trainer(Nudge::default()).build().unwrap()
}

/// The public key of a signing request.
#[expect(clippy::unwrap_used, reason = "a test")]
pub(in crate::participant) fn key(csr_pem: &str) -> Vec<u8> {
    let request = rcgen::CertificateSigningRequestParams::from_pem(csr_pem).unwrap();
    rcgen::PublicKeyData::der_bytes(&request.public_key).to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_renewal_asks_for_a_new_key_and_a_lost_answer_for_the_same_again() {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| world.renew_at = Some(Timestamp(0)));
    coordinator.script("renew", [Fault::AnswerLost]);
    // Killed when the response is lost: the request is in the journal.
    let journal = Arc::new(MemoryJournal::new());
    coordinator.script("check_in", [Fault::Refused(ProblemType::CertificateRevoked, None)]);
    let error = participant(&coordinator, &journal).run(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, ParticipantError::Revoked(_)), "{error}");
    let identity = journal.load(snapshot::IDENTITY).unwrap().unwrap();

    let mut again = participant(&coordinator, &journal);
    again.run(std::future::pending()).await.unwrap();
    let keys: Vec<_> = coordinator.world(|world| world.keys.iter().map(|csr| key(csr)).collect());
    assert_eq!(keys.len(), 3, "enrolment, a renewal, and the same again");
    assert_ne!(keys[0], keys[1]);
    assert_eq!(keys[1], keys[2]);
    assert_ne!(*journal.load(snapshot::IDENTITY).unwrap().unwrap(), *identity);

    // The next is for another key again.
    participant(&coordinator, &journal).run(std::future::pending()).await.unwrap();
    let last = coordinator.world(|world| key(world.keys.last().unwrap()));
    assert!(!keys.contains(&last));
}

#[test]
fn a_session_is_finished_with_the_key_it_began_with() {
    let hub = Hub::new(4, 3);
    hub.world(|world| world.renew_at = Some(Timestamp(0)));
    let mut devices = cohort(&hub);
    finish(&hub, &mut devices);
    check_sums(&hub, "renewing");
    assert!(devices.iter().all(|device| refusals(device).is_empty()));
    assert_eq!(hub.world(|world| world.published.len()), 3);
    for device in 0..4 {
        let keys: Vec<_> =
            hub.world(|world| world.asked.iter().filter(|(of, _)| *of == device).map(|(_, csr)| key(csr)).collect());
        assert!(keys.len() >= 2, "device {device} renewed");
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
    }
}

#[test]
fn keys_that_nobody_draws_do_not_keep_a_certificate_from_being_renewed() {
    const HOUR: i64 = 3_600_000;
    // Always due. Half of the time for renewing is over, or is not.
    for (expires_in, waits) in [(9 * HOUR, true), (HOUR, false)] {
        // The other available devices are missing, so the coordinator cannot draw a cohort.
        let hub = Hub::new(4, 1);
        hub.world(|world| {
            (world.renew_at, world.expires_at) =
                (Some(Timestamp(TODAY.0 - 2 * HOUR)), Some(Timestamp(TODAY.0 + expires_in)));
        });
        let mut devices = cohort(&hub);
        for _ in 0..600 {
            devices[0].step(None);
        }
        let calls = hub.world(|world| world.calls.clone());
        let keys = calls.iter().filter(|(_, call)| *call == "check_in").count();
        let renewals = calls.iter().filter(|(_, call)| *call == "renew").count();
        assert!(keys > 10, "it went on asking");
        assert_eq!(renewals == 1, waits, "{renewals} renewals, the first before there were keys");
    }
}

#[tokio::test(start_paused = true)]
async fn a_participant_whose_certificate_ended_comes_back_with_a_new_token_and_its_journal() {
    let coordinator = Coordinator::new(2);
    coordinator.world(|world| world.personal = true);
    let expired = || Fault::Refused(ProblemType::CertificateExpired, None);
    // Its update of the first round waits to be sent when the certificate ends.
    coordinator.script("upload", [expired()]);
    let journal = Arc::new(MemoryJournal::new());
    journal.save("own-of-a-task", b"what it has learnt").unwrap();
    let error = participant(&coordinator, &journal).run(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, ParticipantError::Expired(_)), "the token it has was used: {error}");
    assert!(error.to_string().contains("--participant"), "{error}");

    coordinator.script("upload", [expired()]);
    coordinator.script("enroll", [Fault::AnswerLost]);
    with_token(&coordinator, &journal, "another").run(std::future::pending()).await.unwrap();
    let keys: Vec<_> = coordinator.world(|world| world.keys.iter().map(|csr| key(csr)).collect());
    assert_eq!(keys.len(), 3, "enrolment, anew, and the same again");
    assert_ne!(keys[0], keys[1]);
    assert_eq!(keys[1], keys[2]);
    assert_eq!(&**journal.load("own-of-a-task").unwrap().unwrap(), b"what it has learnt");
}
