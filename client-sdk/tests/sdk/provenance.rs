//! A participant checks the coordinator's record before it fetches or trains a model, and remembers the records seen.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use client_sdk::journal::{Journal as _, MemoryJournal};
use client_sdk::participant::{ProvenanceError, snapshot};
use client_sdk::{Event, TrainerError};
use wire::participant::Assignment;
use wire::provenance::{BadProvenance, MadeIn, key_of};
use wire::{Digest, TaskId};

use crate::support::Coordinator;
use crate::support::provenance::{KEYS, Tweak, honest, record, sign};
use crate::support::trainers::Nudge;

/// The record field changed after signing. Static, because a tweak is a function without state.
static FIELD: Mutex<usize> = Mutex::new(0);

/// The next attempt of a device that has taken part before.
static ATTEMPT: AtomicU32 = AtomicU32::new(2);

fn another_task() -> TaskId {
    "00000000-0000-0000-0000-000000000001".parse().unwrap()
}

fn by_the_other_key(assignment: &mut Assignment) {
    sign(assignment, 1, |_| ());
}

/// The same number for another file, signed as it must be.
fn with_another_file(assignment: &mut Assignment) {
    assignment.base.sha256 = Digest([9; 32]);
    honest(assignment);
}

/// The same, with a later round than any before.
fn with_another_file_of_a_later_round(assignment: &mut Assignment) {
    assignment.base.sha256 = Digest([9; 32]);
    sign(assignment, 0, |record| record.round = Some(MadeIn { round: 100, attempt: 1 }));
}

/// A journal, and the keys that the app names.
#[derive(Default)]
struct Device {
    journal: Arc<MemoryJournal>,
    named: Vec<usize>,
}

impl Device {
    fn naming(named: &[usize]) -> Self {
        Self { named: named.to_vec(), ..Self::default() }
    }

    /// A process takes part in this many rounds with these records; returns its events.
    async fn run_ahead(&self, rounds: u32, tweak: Option<Tweak>, ahead: bool) -> (Vec<Event>, Coordinator) {
        let coordinator = Coordinator::new(rounds);
        // An answered place is rejected from then on.
        let attempt =
            self.journal.load(snapshot::ROUND).unwrap().map_or(1, |_| ATTEMPT.fetch_add(1, Ordering::Relaxed));
        coordinator.world(|world| {
            world.attempt = attempt;
            (world.tweak, world.tweak_training, world.ahead) = (tweak, tweak, ahead);
        });
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&events);
        let mut participant = coordinator
            .app()
            .enrollment_token("token")
            .coordinator_keys(self.named.iter().map(|key| key_of(&KEYS[*key])))
            .journal(Arc::clone(&self.journal))
            .trainer(Nudge::default())
            .on_event(move |event| seen.lock().unwrap().push(event.clone()))
            .build()
            .unwrap();
        participant.run(std::future::pending()).await.unwrap();
        let events = events.lock().unwrap().clone();
        (events, coordinator)
    }

    async fn run(&self, rounds: u32, tweak: impl Into<Option<Tweak>>) -> (Vec<Event>, Coordinator) {
        self.run_ahead(rounds, tweak.into(), false).await
    }

    /// Runs one round with this record. The participant skips download, training and upload, and the coordinator gets
    /// the reason.
    async fn refuses(&self, tweak: impl Into<Option<Tweak>>) -> (ProvenanceError, Vec<Event>) {
        let (events, coordinator) = self.run(1, tweak).await;
        assert_eq!((coordinator.count("fetch"), coordinator.count("upload")), (0, 0), "{events:?}");
        coordinator.world(|world| assert_eq!(world.abandoned, [(1, "refused")]));
        let code = events.iter().find_map(|event| match event {
            Event::Abandoned { refusal, .. } => *refusal,
            _ => None,
        });
        assert_eq!(code.map(|code| code.as_str()), Some("provenance"));
        let unproven = events.iter().find_map(|event| match event {
            Event::Unproven { error, .. } => Some(error.clone()),
            _ => None,
        });
        (unproven.unwrap(), events)
    }
}

fn pinned(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::KeyPinned { key } if *key == key_of(&KEYS[0]))).count()
}

fn sent(coordinator: &Coordinator) -> usize {
    coordinator.world(|world| world.accepted.len())
}

#[tokio::test]
async fn models_of_the_known_key_are_trained_and_the_first_key_stays() {
    let device = Device::default();
    let (events, coordinator) = device.run(3, honest as Tweak).await;
    assert_eq!((sent(&coordinator), pinned(&events)), (3, 1));
    assert!(!events.iter().any(|event| matches!(event, Event::Unproven { .. } | Event::Refused { .. })), "{events:?}");
    let again = Device { journal: Arc::clone(&device.journal), named: Vec::new() };
    let (error, events) = again.refuses(by_the_other_key as Tweak).await;
    let [ours, other] = [0, 1].map(|key| key_of(&KEYS[key]));
    assert_eq!(error, ProvenanceError::OtherKey { expected: ours.to_string(), found: other });
    assert_eq!(pinned(&events), 0, "after a restart it is known");
    let named = Device::naming(&[0]);
    let (events, coordinator) = named.run(2, honest as Tweak).await;
    assert_eq!((sent(&coordinator), pinned(&events)), (2, 0), "a key that the app names is not told of");
    assert!(matches!(
        Device::naming(&[0]).refuses(by_the_other_key as Tweak).await.0,
        ProvenanceError::OtherKey { .. }
    ));
}

#[tokio::test]
async fn a_record_of_anything_else_is_refused_field_by_field() {
    let of_another: [(&str, Tweak); 5] = [
        ("task", |assignment| sign(assignment, 0, |record| record.task = another_task())),
        ("version", |assignment| sign(assignment, 0, |record| record.version = 1)),
        ("model", |assignment| sign(assignment, 0, |record| record.sha256 = Digest([9; 32]))),
        ("size", |assignment| sign(assignment, 0, |record| record.bytes += 1)),
        // Possible changes by a TLS-terminating balancer: the record is honest.
        ("training", |assignment| {
            honest(assignment);
            assignment.training.epochs += 1;
        }),
    ];
    for (what, tweak) in of_another {
        let (error, _) = Device::default().refuses(tweak).await;
        assert_eq!(error, ProvenanceError::OtherAssignment(what));
    }
    // A change of any field after signing.
    let device = Device::default();
    let (_, coordinator) = device.run(1, honest as Tweak).await;
    let fields = coordinator.world(|world| {
        let text = record(&Coordinator::assignment(world), 0).sign(&KEYS[0]).record;
        serde_json::from_str::<serde_json::Map<_, _>>(&text).unwrap().len()
    });
    for field in 0..fields {
        *FIELD.lock().unwrap() = field;
        let (error, _) = Device::default()
            .refuses(
                (|assignment| {
                    honest(assignment);
                    let signed = assignment.provenance.as_mut().unwrap();
                    let mut map: serde_json::Map<String, serde_json::Value> =
                        serde_json::from_str(&signed.record).unwrap();
                    let name = map.keys().nth(*FIELD.lock().unwrap()).unwrap().clone();
                    let value = match (name.as_str(), &map[&name]) {
                        ("coordinator", _) => key_of(&KEYS[1]).to_string().into(),
                        ("task_sha256" | "sha256", _) => Digest([5; 32]).to_string().into(),
                        ("task", _) => "00000000-0000-0000-0000-000000000001".into(),
                        ("origin", _) => "restored".into(),
                        ("roster", _) => Digest([5; 32]).to_string().into(),
                        ("base", _) => serde_json::json!({ "version": 0, "sha256": Digest([5; 32]) }),
                        ("round", _) => serde_json::json!({ "round": 1, "attempt": 1 }),
                        ("privacy", _) => serde_json::json!({ "epsilon": 1.0, "delta": 1e-5 }),
                        (_, serde_json::Value::Number(number)) => (number.as_u64().unwrap() + 1).into(),
                        (_, serde_json::Value::Null) => 1.into(),
                        (_, other) => format!("{other} or so").into(),
                    };
                    map.insert(name, value);
                    signed.record = serde_json::to_string(&map).unwrap();
                }) as Tweak,
            )
            .await;
        assert!(
            matches!(error, ProvenanceError::Bad(BadProvenance::Signature(_) | BadProvenance::Format(2))),
            "field {field}: {error}"
        );
    }
}

#[tokio::test]
async fn a_coordinator_that_has_shown_records_cannot_go_back_to_showing_none() {
    let device = Device::default();
    let (events, coordinator) = device.run(1, None).await;
    assert_eq!(
        (sent(&coordinator), pinned(&events)),
        (1, 0),
        "a journal, and a coordinator, from before there were records"
    );
    let (_, coordinator) = device.run(1, honest as Tweak).await;
    assert_eq!(coordinator.count("fetch"), 1);
    assert_eq!(device.refuses(None).await.0, ProvenanceError::Missing);
    assert_eq!(
        Device::naming(&[0]).refuses(None).await.0,
        ProvenanceError::Missing,
        "an app that names a key expects one"
    );
}

#[tokio::test]
async fn two_models_of_one_number_are_evidence_that_outlives_the_process() {
    let device = Device::default();
    device.run(1, honest as Tweak).await;
    let is_evidence = |event: &Event| match event {
        Event::Equivocation { taken, refused, .. } => {
            let [taken, refused] = [taken, refused].map(|signed| signed.open().unwrap());
            (taken.task, taken.version) == (refused.task, refused.version) && taken.sha256 != refused.sha256
        }
        _ => false,
    };
    let (error, events) = device.refuses(with_another_file as Tweak).await;
    assert_eq!(error, ProvenanceError::Equivocation { version: 0, sha256: Digest([9; 32]) });
    assert_eq!(events.iter().filter(|event| is_evidence(event)).count(), 1);
    // Another process: reported first, and refused as before.
    let (error, events) = device.refuses(with_another_file as Tweak).await;
    assert!(matches!(error, ProvenanceError::Equivocation { version: 0, .. }));
    let told: Vec<_> = events.iter().filter(|event| !matches!(event, Event::Lowered { .. })).collect();
    assert!(is_evidence(told[0]), "{told:?}");
    assert_eq!(events.iter().filter(|event| is_evidence(event)).count(), 1);
    // The first record seen is still accepted. A later round does not excuse it if the version seen was not made by a
    // round.
    let (_, coordinator) = device.run(1, honest as Tweak).await;
    assert_eq!(coordinator.count("fetch"), 1);
    let (error, _) = device.refuses(with_another_file_of_a_later_round as Tweak).await;
    assert!(matches!(error, ProvenanceError::Equivocation { .. }));
}

#[tokio::test]
async fn a_task_that_was_rebased_goes_on_and_the_app_is_told() {
    let device = Device::default();
    device.run(3, honest as Tweak).await;
    // A coordinator that lost all but the first two versions, and continued beyond the lost rounds.
    let (events, _) = device
        .run(
            2,
            (|assignment| {
                if assignment.base.version == 1 {
                    with_another_file_of_a_later_round(assignment);
                } else {
                    honest(assignment);
                }
            }) as Tweak,
        )
        .await;
    let told = events.iter().filter(|event| matches!(event, Event::Rebased { version: 1, .. })).count();
    assert_eq!(told, 1, "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, Event::Unproven { .. } | Event::Equivocation { .. })));
}

#[tokio::test]
async fn a_key_is_replaced_by_one_that_the_app_names() {
    let device = Device::default();
    device.run(1, honest as Tweak).await;
    assert!(matches!(device.refuses(by_the_other_key as Tweak).await.0, ProvenanceError::OtherKey { .. }));
    let both = Device { journal: Arc::clone(&device.journal), named: vec![0, 1] };
    let (events, coordinator) = both.run(1, by_the_other_key as Tweak).await;
    assert_eq!((coordinator.count("fetch"), pinned(&events)), (1, 0));
    // The same files, signed anew, are consistent; and the new key stays without being named.
    let after = Device { journal: device.journal, named: Vec::new() };
    let (_, coordinator) = after.run(1, by_the_other_key as Tweak).await;
    assert_eq!(coordinator.count("fetch"), 1);
    assert!(matches!(after.refuses(honest as Tweak).await.0, ProvenanceError::OtherKey { .. }));
}

#[tokio::test]
async fn training_ahead_of_rounds_is_held_to_the_same() {
    let device = Device::default();
    let (events, coordinator) = device.run_ahead(2, Some(honest), true).await;
    assert_eq!(sent(&coordinator), 2);
    assert!(events.iter().any(|event| matches!(event, Event::ToTrain { .. })) && pinned(&events) == 1);
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| (world.ahead, world.tweak_training) = (true, Some(with_another_file as Tweak)));
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stop = Mutex::new(Some(stop));
    let mut participant = coordinator
        .app()
        .enrollment_token("token")
        .journal(device.journal)
        .trainer(Never)
        .on_event(move |event| {
            seen.lock().unwrap().push(event.clone());
            // It would be requested repeatedly.
            if let (Event::Refused { .. }, Some(stop)) = (event, stop.lock().unwrap().take()) {
                stop.send(()).unwrap();
            }
        })
        .build()
        .unwrap();
    participant
        .run(async move {
            let _ = stopped.await;
        })
        .await
        .unwrap();
    let events = events.lock().unwrap();
    assert!(events.iter().any(|event| {
        matches!(event, Event::Unproven { error: ProvenanceError::Equivocation { version: 0, .. }, .. })
    }));
    assert_eq!(coordinator.count("fetch"), 0, "{events:?}");
}

/// Must not be called.
struct Never;

impl client_sdk::Trainer for Never {
    fn train(
        &mut self,
        _: &client_sdk::learning::Parameters,
        _: &client_sdk::TrainingJob,
    ) -> Result<client_sdk::Trained, TrainerError> {
        panic!("nothing is trained");
    }

    fn evaluate(
        &mut self,
        _: &client_sdk::learning::Parameters,
        _: &client_sdk::TrainingJob,
    ) -> Result<Vec<(String, client_sdk::learning::MetricValue)>, TrainerError> {
        panic!("nothing is evaluated");
    }

    fn examples(&self) -> u64 {
        1
    }
}
