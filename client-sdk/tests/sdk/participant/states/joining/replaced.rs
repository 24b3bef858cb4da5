//! A participant whose authority was replaced: with its app's new CA file and a new token it comes back with its journal.

use std::sync::{Arc, Mutex};

use client_sdk::journal::{Journal as _, MemoryJournal};
use client_sdk::participant::snapshot;
use client_sdk::{BuildError, Builder, Event, Participant, ParticipantError};
use wire::certificate::Issuers;
use wire::problem::ProblemType;

use crate::support::cohort::{Hub, id};
use crate::support::device::{Device, check_sums, finish, refusals};
use crate::support::trainers::Nudge;
use crate::support::{CA, Ca, Coordinator, Fault, ca_pem, participant, settings};

type Told = Arc<Mutex<Vec<Event>>>;

/// An app with this CA file.
fn app(coordinator: &Coordinator, journal: &Arc<MemoryJournal>, ca: &str, told: &Told) -> Builder {
    let told = Arc::clone(told);
    let app = coordinator.app().members_ca_pem(ca).journal(Arc::clone(journal)).trainer(Nudge::default());
    app.on_event(move |event| told.lock().unwrap().push(event.clone()))
}

/// A participant of the authority before, with an update of the first round on its way that does not arrive.
async fn before(coordinator: &Coordinator) -> Arc<MemoryJournal> {
    let journal = Arc::new(MemoryJournal::new());
    journal.save("own-of-a-task", b"what it has learnt").unwrap();
    coordinator.script("upload", vec![Fault::Lost; 1000]);
    let mut first = app(coordinator, &journal, ca_pem(), &Told::default()).enrollment_token("token").build().unwrap();
    first.run(tokio::time::sleep(std::time::Duration::from_secs(30))).await.unwrap();
    assert!(coordinator.count("upload") > 0);
    coordinator.world(|world| world.faults.clear());
    journal
}

fn has_no_way(built: Result<Participant, BuildError>) {
    let error = built.map(|_| ()).unwrap_err();
    assert!(
        matches!(error, BuildError::Participant(ParticipantError::AuthorityReplaced { participant: of }) if of == participant()),
        "{error}"
    );
    let said = error.to_string();
    assert!(said.contains("`--token`") && said.contains("another authority") && !said.contains('\n'), "{said}");
}

#[tokio::test(start_paused = true)]
async fn with_a_new_token_it_comes_back_with_its_journal_and_gives_no_second_answer() {
    let coordinator = Coordinator::new(2);
    let journal = before(&coordinator).await;
    // Called as the one before.
    let new = Arc::new(Ca::new("CA"));
    coordinator.world(|world| world.ca = Some(Arc::clone(&new)));
    let told = Told::default();
    has_no_way(app(&coordinator, &journal, &new.pem, &told).build());
    has_no_way(app(&coordinator, &journal, &new.pem, &told).enrollment_token("token").build());

    // The same key is requested again if the response is lost.
    coordinator.script("enroll", [Fault::AnswerLost]);
    let mut back = app(&coordinator, &journal, &new.pem, &told).enrollment_token("another").build().unwrap();
    assert!(back.certified().is_none() && back.machine().presented().is_none(), "the certificate before is not shown");
    back.run(std::future::pending()).await.unwrap();
    let keys: Vec<_> = coordinator.world(|world| world.keys.iter().map(|csr| key(csr)).collect());
    assert_eq!(keys.len(), 3, "enrolment, again, and the same once more");
    assert!(keys[0] != keys[1] && keys[1] == keys[2]);
    let told = std::mem::take(&mut *told.lock().unwrap());
    let left = told.iter().find_map(|event| match event {
        Event::AuthorityReplaced { before, left } if *before == participant() => *left,
        _ => None,
    });
    assert_eq!(left.map(|place| (place.round, place.attempt)), Some((1, 1)));
    coordinator.world(|world| {
        let sent = &world.sent[&1];
        assert!(sent.iter().all(|body| *body == sent[0]), "the same words all along");
        assert_eq!(world.abandoned, [(1, "refused")], "it is not answered in again");
        assert_eq!(world.accepted.keys().copied().collect::<Vec<_>>(), [2]);
    });
    assert_eq!(&**journal.load("own-of-a-task").unwrap().unwrap(), b"what it has learnt");

    // Afterwards it works without the token and the old file.
    let again = app(&coordinator, &journal, &new.pem, &Told::default()).build().unwrap();
    let kept = again.certified().unwrap();
    assert!(Issuers::from_pem(&new.pem).unwrap().holder(&leaf(&kept.certificate_pem)).is_some());
    has_no_way(app(&coordinator, &journal, ca_pem(), &Told::default()).build());
}

/// The public key of a signing request.
fn key(csr_pem: &str) -> Vec<u8> {
    let request = rcgen::CertificateSigningRequestParams::from_pem(csr_pem).unwrap();
    rcgen::PublicKeyData::der_bytes(&request.public_key).to_vec()
}

fn leaf(chain_pem: &str) -> Vec<u8> {
    wire::certificate::chain_der(chain_pem).unwrap().remove(0)
}

#[tokio::test(start_paused = true)]
async fn whatever_a_coordinator_says_only_the_apps_file_makes_it_enrol_again() {
    let coordinator = Coordinator::new(1);
    let journal = before(&coordinator).await;
    let identity = journal.load(snapshot::IDENTITY).unwrap().unwrap();
    // An attacker with its own CA, who rejects everything.
    coordinator.world(|world| world.ca = Some(Arc::new(Ca::new("CA"))));
    coordinator.script("upload", vec![Fault::Lost; 20]);
    coordinator.script("upload", vec![Fault::Refused(ProblemType::Unauthenticated, None)]);
    let told = Told::default();
    // The file names the authority before and another.
    let both = ca_pem().to_owned() + &Ca::new("CA").pem;
    let mut same = app(&coordinator, &journal, &both, &told).enrollment_token("another").build().unwrap();
    assert!(same.certified().is_some());
    let _ = same.run(tokio::time::sleep(std::time::Duration::from_secs(600))).await;
    assert_eq!(coordinator.count("enroll"), 1);
    assert_eq!(*journal.load(snapshot::IDENTITY).unwrap().unwrap(), *identity);
    let told = told.lock().unwrap();
    assert!(!told.iter().any(|event| matches!(event, Event::AuthorityReplaced { .. })), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_token_for_another_participant_makes_it_another_with_the_same_ledgers() {
    let coordinator = Coordinator::new(2);
    let journal = before(&coordinator).await;
    let new = Arc::new(Ca::new("CA"));
    coordinator.world(|world| {
        world.ca = Some(Arc::clone(&new));
        // The certificate names it, but the answer does not: such an answer is refused, and the state stays.
        world.certified_participant = Some(id(7));
    });
    let told = Told::default();
    let mut refused = app(&coordinator, &journal, &new.pem, &told).enrollment_token("another").build().unwrap();
    let error = refused.run(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, ParticipantError::Uncertified(_)), "{error}");
    assert!(!told.lock().unwrap().iter().any(|event| matches!(event, Event::AuthorityReplaced { .. })));
    coordinator.world(|world| world.named = Some(id(7)));
    let mut back = app(&coordinator, &journal, &new.pem, &told).enrollment_token("another").build().unwrap();
    back.run(std::future::pending()).await.unwrap();
    assert_eq!(back.certified().unwrap().participant, id(7));
    let replaced = |event: &Event| matches!(event, Event::AuthorityReplaced { before, .. } if *before == participant());
    assert_eq!(told.lock().unwrap().iter().filter(|event| replaced(event)).count(), 1);
    // The participant's old identity sent the update of the first round, so the new one skips that round.
    coordinator.world(|world| assert_eq!(world.accepted.keys().copied().collect::<Vec<_>>(), [2]));
}

/// Its session belongs to the old certificate, so it sends no further messages in it.
#[test]
fn a_session_of_the_authority_before_is_left_wherever_it_stands() {
    type Is = fn(&Event) -> bool;
    let stands: [(&str, Is); 4] = [
        ("invited", |event| matches!(event, Event::Invited { .. })),
        ("delivered", |event| matches!(event, Event::Delivered { .. })),
        ("uploaded", |event| matches!(event, Event::Uploaded { .. })),
        ("confirmed", |event| matches!(event, Event::Confirmed { .. })),
    ];
    for (what, stands) in stands {
        let [before, after] = ["before", "after"].map(|name| Arc::new(Ca::new(name)));
        let trusting = |authorities: &[&str]| {
            let mut settings = settings();
            settings.members = Issuers::from_pem(&authorities.concat()).unwrap();
            settings
        };
        let hub = Hub::new(4, 2);
        hub.world(|world| world.accomplices.insert(0, Arc::clone(&before)));
        let mut devices = vec![Device::new(0, &hub, trusting(&[before.pem.as_str(), CA.pem.as_str()]))];
        let all = || trusting(&[before.pem.as_str(), after.pem.as_str(), CA.pem.as_str()]);
        devices.extend((1..4).map(|index| Device::new(index, &hub, all())));
        for _ in 0..300 {
            if devices[0].events.iter().any(stands) {
                break;
            }
            devices.iter_mut().for_each(|device| device.step(None));
        }
        assert!(devices[0].events.iter().any(stands), "{what}");
        let own = |hub: &Hub| -> Vec<_> {
            let first = |place: &&(u32, u32, &'static str, usize)| (place.0, place.1, place.3) == (1, 1, 0);
            hub.world(|world| world.said.keys().filter(first).map(|place| place.2).collect())
        };
        let said = own(&hub);

        hub.world(|world| {
            world.accomplices.insert(0, Arc::clone(&after));
            world.give_up(0);
            world.settle();
        });
        devices[0].settings = trusting(&[after.pem.as_str(), CA.pem.as_str()]);
        devices[0].token = "another";
        devices[0].restart();
        assert!(devices[0].machine.presented().is_none());
        finish(&hub, &mut devices);
        check_sums(&hub, what);
        let more: Vec<_> = own(&hub).into_iter().filter(|kind| !said.contains(kind)).collect();
        assert_eq!(more, [""; 0], "{what}");
        let last = hub.world(|world| world.published.last().map(|done| (done.round, done.survivors.clone())));
        assert_eq!(last, Some((2, vec![0, 1, 2, 3])), "{what}: {:?}", refusals(&devices[0]));
        let replaced = |event: &&Event| matches!(event, Event::AuthorityReplaced { left: Some(_), .. });
        assert_eq!(devices[0].events.iter().filter(replaced).count(), 1, "{what}");
    }
}
