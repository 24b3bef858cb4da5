//! The coordinator's messages and the participant's reactions. Hostile assignments are rejected before they cost resources.

use std::sync::{Arc, Mutex};

use client_sdk::journal::MemoryJournal;
use client_sdk::{BuildError, Event, Outcome, ParticipantError};
use task_spec::Compression;
use wire::participant::{Assignment, CodecTerms};
use wire::problem::ProblemType;

use crate::support::trainers::Nudge;
use crate::support::{Coordinator, Fault};

/// Runs to the end; a round that is over makes room for the next.
async fn run(coordinator: &Coordinator) -> (Result<Outcome, ParticipantError>, Vec<Event>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let (seen, world) = (Arc::clone(&events), Arc::clone(&coordinator.0));
    let mut participant = coordinator
        .app()
        .enrollment_token("token")
        .journal(MemoryJournal::new())
        .trainer(Nudge::default())
        .on_event(move |event| {
            if matches!(event, Event::RoundOver { .. }) {
                world.lock().unwrap().rounds_done += 1;
            }
            seen.lock().unwrap().push(event.clone());
        })
        .build()
        .unwrap();
    let outcome = participant.run(std::future::pending()).await;
    let events = events.lock().unwrap().clone();
    (outcome, events)
}

fn accepted(coordinator: &Coordinator) -> Vec<u32> {
    coordinator.world(|world| world.accepted.keys().copied().collect())
}

#[tokio::test(start_paused = true)]
async fn an_update_for_a_round_that_went_on_is_dropped() {
    for kind in [
        ProblemType::PhaseClosed,
        ProblemType::NotAssigned,
        ProblemType::DifferentInput,
        ProblemType::TaskStatus,
        ProblemType::NotFound,
    ] {
        let coordinator = Coordinator::new(2);
        coordinator.script("upload", [Fault::Refused(kind, None)]);
        let (outcome, events) = run(&coordinator).await;
        assert!(matches!(outcome, Ok(Outcome::TaskOver { .. })));
        assert_eq!(accepted(&coordinator), [2], "{kind:?}");
        assert!(events.iter().any(|event| matches!(event, Event::RoundOver { place, .. } if place.round == 1)));
        assert!(coordinator.world(|world| world.abandoned.is_empty()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_that_will_never_be_taken_gives_up_the_place() {
    for kind in [ProblemType::WrongLength, ProblemType::TooLarge, ProblemType::UnsupportedMediaType] {
        let coordinator = Coordinator::new(2);
        coordinator.script("upload", [Fault::Refused(kind, None)]);
        run(&coordinator).await.0.unwrap();
        assert_eq!(coordinator.world(|world| world.abandoned.clone()), [(1, "refused")]);
        assert_eq!(accepted(&coordinator), [2]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_time_can_mend_is_tried_again() {
    for kind in [ProblemType::RateLimited, ProblemType::Unavailable, ProblemType::Internal, ProblemType::DigestMismatch]
    {
        for call in ["check_in", "fetch", "upload"] {
            let coordinator = Coordinator::new(1);
            coordinator.script(call, vec![Fault::Refused(kind, None); 3]);
            let (outcome, events) = run(&coordinator).await;
            outcome.unwrap();
            assert_eq!(accepted(&coordinator), [1], "{kind:?} {call}");
            assert_eq!(events.iter().filter(|event| matches!(event, Event::Retry { .. })).count(), 3);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_revoked_or_expired_certificate_ends_it_wherever_it_is_told() {
    for call in ["check_in", "fetch", "upload"] {
        let coordinator = Coordinator::new(1);
        coordinator.script(call, [Fault::Refused(ProblemType::CertificateRevoked, None)]);
        let error = run(&coordinator).await.0.unwrap_err();
        assert!(matches!(error, ParticipantError::Revoked(_)), "{error}");

        let coordinator = Coordinator::new(1);
        coordinator.script(call, [Fault::Refused(ProblemType::CertificateExpired, None)]);
        let error = run(&coordinator).await.0.unwrap_err();
        assert!(error.to_string().contains("give it a new token"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn enrolment_ends_or_goes_on_as_it_should() {
    let coordinator = Coordinator::new(1);
    coordinator.script("enroll", [Fault::Refused(ProblemType::EnrollmentRefused, None)]);
    assert!(matches!(run(&coordinator).await.0, Err(ParticipantError::EnrollmentRefused(_))));
    let coordinator = Coordinator::new(1);
    coordinator.script("enroll", [Fault::Refused(ProblemType::Conflict, None)]);
    assert!(matches!(run(&coordinator).await.0, Err(ParticipantError::Refused { what: "enrol", .. })));
    let coordinator = Coordinator::new(1);
    coordinator.script("enroll", [Fault::Lost, Fault::Refused(ProblemType::Unavailable, None)]);
    run(&coordinator).await.0.unwrap();

    let builder = Coordinator::new(1).app().journal(MemoryJournal::new());
    let error = builder.trainer(Nudge::default()).build().map(|_| ()).unwrap_err();
    assert!(matches!(error, BuildError::Participant(ParticipantError::NotEnrolled)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_not_there_yet_is_waited_for_and_a_check_in_that_is_wrong_is_not() {
    let coordinator = Coordinator::new(1);
    coordinator.script("check_in", vec![Fault::Refused(ProblemType::NotFound, None); 5]);
    run(&coordinator).await.0.unwrap();
    assert_eq!(accepted(&coordinator), [1]);
    let coordinator = Coordinator::new(1);
    coordinator.script("check_in", [Fault::Refused(ProblemType::UnsupportedProtocol, None)]);
    assert!(matches!(run(&coordinator).await.0, Err(ParticipantError::Refused { what: "check in", .. })));
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_model_is_fetched_from_where_it_ended() {
    let coordinator = Coordinator::new(1);
    coordinator.script("fetch", [Fault::Half, Fault::Lost, Fault::Half]);
    run(&coordinator).await.0.unwrap();
    assert_eq!(accepted(&coordinator), [1]);
    let size = Coordinator::published(false, 0).len();
    let second = size / 2;
    let third = second + (size - second) / 2;
    assert_eq!(coordinator.world(|world| world.ranges.clone()), [0, second, third]);
}

#[tokio::test(start_paused = true)]
async fn a_model_with_another_digest_is_never_trained_on() {
    let coordinator = Coordinator::new(1);
    coordinator.script("fetch", [Fault::Garbage, Fault::Garbage]);
    run(&coordinator).await.0.unwrap();
    assert_eq!(accepted(&coordinator), [1]);
    assert_eq!(coordinator.world(|world| world.ranges.clone()), [0, 0, 0], "begun anew each time");

    let coordinator = Coordinator::new(1);
    coordinator.script("fetch", vec![Fault::Garbage; 3]);
    run(&coordinator).await.0.unwrap();
    assert_eq!(coordinator.world(|world| world.abandoned.clone()), [(1, "refused")]);
    assert!(coordinator.world(|world| world.sent.is_empty()));
}

type Tweak = (&'static str, fn(&mut Assignment));

#[tokio::test(start_paused = true)]
async fn an_assignment_that_makes_no_sense_is_refused_before_anything_is_fetched() {
    let tweaks: [Tweak; 8] = [
        ("no tensors", |a| a.model.tensors.clear()),
        ("too many parameters", |a| a.model.tensors[0].shape = vec![1 << 20, 1 << 20]),
        ("a file larger than the model", |a| a.base.bytes = 1 << 40),
        ("a pattern that matches nothing", |a| a.model.personal = vec!["nothing.*".into()]),
        ("a pattern that matches everything", |a| a.model.personal = vec!["*".into()]),
        ("no headroom", |a| a.encoding.max_weight = u32::MAX),
        ("a cohort beyond the headroom", |a| a.cohort = 11),
        ("a codec that does not fit", |a| {
            let codec = Compression::TopK { k: 6, error_feedback: true };
            a.encoding.compression = Some(CodecTerms { codec, seed: 1 });
        }),
    ];
    for (what, tweak) in tweaks {
        let coordinator = Coordinator::new(1);
        coordinator.world(|world| world.tweak = Some(tweak));
        let (outcome, events) = run(&coordinator).await;
        outcome.unwrap();
        assert_eq!(coordinator.world(|world| world.abandoned.clone()), [(1, "refused")], "{what}");
        assert_eq!(coordinator.count("fetch"), 0, "{what}");
        // Oversized assignments are refused; inconsistent ones fail in training.
        let told = |event: &Event| matches!(event, Event::TrainingFailed { .. } | Event::Refused { .. });
        assert!(events.iter().any(told), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_of_another_shape_than_assigned_is_refused() {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| world.tweak = Some(|assignment| assignment.model.tensors[0].shape = vec![4]));
    let (outcome, events) = run(&coordinator).await;
    outcome.unwrap();
    assert_eq!(coordinator.world(|world| world.abandoned.clone()), [(1, "refused")]);
    let told = |event: &Event| matches!(event, Event::TrainingFailed { error, .. } if error.contains("base"));
    assert!(events.iter().any(told), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn giving_up_is_repeated_while_the_place_is_offered_again() {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| world.tweak = Some(|assignment| assignment.cohort = 11));
    // The coordinator hears of it only at the fifth attempt.
    coordinator.script("abandon", vec![Fault::Lost; 4]);
    run(&coordinator).await.0.unwrap();
    assert_eq!(coordinator.world(|world| world.abandoned.clone()), [(1, "refused")]);
    assert_eq!(coordinator.count("abandon"), 5);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_was_answered_is_never_taken_again() {
    let coordinator = Coordinator::new(2);
    coordinator.world(|world| world.reoffer = 3);
    run(&coordinator).await.0.unwrap();
    coordinator.world(|world| {
        assert_eq!(world.sent.values().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(world.reoffer, 0);
    });
    assert_eq!(coordinator.count("fetch"), 2);
}

#[tokio::test(start_paused = true)]
async fn names_are_checked_before_anything_is_sent() {
    for name in ["", "with space", &"x".repeat(65)] {
        let builder = Coordinator::new(1).app().journal(MemoryJournal::new());
        let error = builder.trainer(Nudge::default()).name(name).build().map(|_| ()).unwrap_err();
        assert!(matches!(error, BuildError::BadName { what: "name", .. }), "{error}");
    }
    for labels in [("", "eu"), ("region", &*"x".repeat(129))] {
        let labels = [(labels.0.to_owned(), labels.1.to_owned())].into();
        let builder = Coordinator::new(1).app().journal(MemoryJournal::new());
        let error = builder.trainer(Nudge::default()).labels(labels).build().map(|_| ()).unwrap_err();
        assert!(matches!(error, BuildError::BadLabel { .. }), "{error}");
    }
}
