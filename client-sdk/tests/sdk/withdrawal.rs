//! A stopped participant withdraws: retries, and the checks of the coordinator's statement.

use std::sync::Arc;

use client_sdk::journal::MemoryJournal;
use client_sdk::{BuildError, Builder, ParticipantError, WithdrawalError, runner};
use wire::contributions::{Contributions, FORMAT, SignedContributions};
use wire::participant::Assignment;
use wire::problem::ProblemType;
use wire::provenance::key_of;
use wire::{ParticipantId, Timestamp};

use crate::support::provenance::{KEYS, Tweak, honest};
use crate::support::trainers::Nudge;
use crate::support::{Coordinator, Fault, participant};

fn statement(key: usize, change: impl FnOnce(&mut Contributions)) -> SignedContributions {
    let mut statement = Contributions {
        format: FORMAT,
        coordinator: key_of(&KEYS[key]),
        participant: participant(),
        revoked_at: Some(Timestamp(5)),
        tasks: Vec::new(),
        signed_at: Timestamp(6),
        program: "a test".to_owned(),
    };
    change(&mut statement);
    statement.sign(&KEYS[key])
}

/// The journal of a participant that took part in a round.
async fn journal(tweak: Option<Tweak>) -> (Arc<MemoryJournal>, Coordinator) {
    let (journal, coordinator) = (Arc::new(MemoryJournal::new()), Coordinator::new(1));
    coordinator.world(|world| world.tweak = tweak);
    let app = coordinator.app().enrollment_token("token").journal(Arc::clone(&journal)).trainer(Nudge::default());
    app.build().unwrap().run(std::future::pending()).await.unwrap();
    (journal, coordinator)
}

fn stopped(coordinator: &Coordinator, journal: &Arc<MemoryJournal>) -> Builder {
    coordinator.app().journal(Arc::clone(journal))
}

#[tokio::test(start_paused = true)]
async fn withdrawal_is_repeated_until_the_statement_arrives() {
    let (journal, coordinator) = journal(None).await;
    let signed = statement(0, |_| ());
    coordinator.world(|world| world.statement = Some(signed.clone()));
    coordinator.script("withdraw", [Fault::Lost, Fault::AnswerLost, Fault::Refused(ProblemType::Unavailable, None)]);
    assert_eq!(stopped(&coordinator, &journal).withdraw().await.unwrap(), signed);
    assert_eq!(coordinator.count("withdraw"), 4);
    // For an app without a runtime of its own, and for one with.
    assert_eq!(runner::withdraw(stopped(&coordinator, &journal)).unwrap(), signed);

    coordinator.world(|world| world.offline = true);
    let error = stopped(&coordinator, &journal).withdraw().await.unwrap_err();
    assert!(matches!(error, WithdrawalError::Unreachable(_)), "{error}");
    assert_eq!(coordinator.count("withdraw"), 5 + 6);
}

#[tokio::test(start_paused = true)]
async fn withdrawal_that_the_coordinator_rejects_is_not_repeated() {
    let (journal, coordinator) = journal(None).await;
    // An older coordinator has no such route.
    for (kind, text) in
        [(ProblemType::NotFound, "refused to withdraw"), (ProblemType::CertificateExpired, "has expired")]
    {
        coordinator.script("withdraw", [Fault::Refused(kind, None)]);
        let error = stopped(&coordinator, &journal).withdraw().await.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    assert_eq!(coordinator.count("withdraw"), 2);
    let empty = Arc::new(MemoryJournal::new());
    for app in [stopped(&coordinator, &empty), stopped(&coordinator, &empty).enrollment_token("token")] {
        let error = app.withdraw().await.unwrap_err();
        let WithdrawalError::Build(BuildError::Participant(ParticipantError::NotEnrolled)) = error else {
            panic!("{error}")
        };
    }
    assert_eq!(coordinator.count("withdraw"), 2);
}

#[tokio::test(start_paused = true)]
async fn statement_that_proves_nothing_is_rejected() {
    let (journal, coordinator) = journal(Some(honest as fn(&mut Assignment))).await;
    let other: ParticipantId = "00000000-0000-4000-8000-000000000009".parse().unwrap();
    let mut changed = statement(0, |_| ());
    changed.statement = changed.statement.replace(":5", ":4");
    for (signed, text) in [
        (
            statement(0, |statement| statement.participant = other),
            "about participant 00000000-0000-4000-8000-000000000009",
        ),
        (statement(1, |_| ()), "another coordinator's key"),
        (statement(0, |statement| statement.revoked_at = None), "does not state"),
        (changed, "is not signed"),
    ] {
        coordinator.world(|world| world.statement = Some(signed));
        let error = stopped(&coordinator, &journal).withdraw().await.unwrap_err().to_string();
        assert!(error.starts_with("the participant is withdrawn, but") && error.contains(text), "{error}");
    }
    // The app may name the key.
    coordinator.world(|world| world.statement = Some(statement(1, |_| ())));
    let app = stopped(&coordinator, &journal).coordinator_keys([key_of(&KEYS[1])]);
    assert!(app.withdraw().await.is_ok());
}
