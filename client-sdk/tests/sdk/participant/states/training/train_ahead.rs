//! A participant trains ahead of rounds and keeps the update: whenever it dies, the update is in at most one sum, and
//! is aggregated without training again, weighted by its age.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::conditions::Readiness;
use client_sdk::journal::MemoryJournal;
use client_sdk::learning::{Codec, ExactSum, QuantizationParams};
use client_sdk::participant::machine::{Action, Input};
use client_sdk::participant::snapshot;
use client_sdk::transport::{Request, Response};
use client_sdk::{Event, Outcome, SecurityPolicy};
use secure_agg::modular::Modulus;
use secure_agg::packing;
use secure_agg::params::{SessionConfig, VectorShape};
use task_spec::{Over, Schedule, Staleness};
use wire::participant::{
    Assignment, CheckInReply, CheckInRequest, DiscardReason, Question, SessionTerms, TrainingReport,
};
use wire::{Criterion, Digest, TaskId};

use crate::support::device::EFFECTS;
use crate::support::trainers::Nudge;
use crate::support::{Coordinator, in_the_clear, task};

type Device = crate::support::device::Device<Coordinator, Nudge>;

const ROUNDS: u32 = 3;

/// One that trains ahead of rounds.
fn training_ahead(change: impl FnOnce(&mut crate::support::World)) -> Device {
    let coordinator = Coordinator::new(ROUNDS);
    coordinator.world(|world| {
        world.ahead = true;
        change(world);
    });
    Device::with(Arc::new(MemoryJournal::new()), 0, coordinator, Nudge::default(), in_the_clear())
}

/// The first value of the update and the weight, of each accepted input.
fn accepted(device: &Device) -> Vec<(f64, u32)> {
    let bodies = device.coordinator.world(|world| world.accepted.values().cloned().collect::<Vec<_>>());
    let encoding = device.coordinator.world(|world| Coordinator::assignment(world).encoding);
    let params = QuantizationParams {
        parameters: 5,
        modulus_bits: encoding.modulus_bits,
        clip_range: encoding.clip_range,
        clip_norm: encoding.clip_norm,
        max_weight: encoding.max_weight,
        max_cohort: encoding.max_cohort,
        metrics: 2,
    };
    let codec = Codec::new(params).unwrap();
    let read = |body: &bytes::Bytes| {
        let words = packing::unpack(body, codec.len(), Modulus::new(32).unwrap()).unwrap();
        let sum = ExactSum::new(words.clone(), 32, 1).unwrap().release_without_noise();
        (f64::from(codec.decode(&sum).unwrap().delta[0]), words[5])
    };
    bodies.iter().map(read).collect()
}

const MOST: usize = 500;

#[test]
fn it_trains_on_the_fetched_version_and_is_aggregated_without_training_again() {
    let mut device = training_ahead(|_| {});
    assert!(device.run(MOST, |_| None) < MOST);
    assert_eq!(device.trainer.seen.lock().unwrap().len(), ROUNDS as usize, "one training a round");
    assert_eq!(device.coordinator.count("fetch"), ROUNDS as usize, "the round's own base is not needed");
    let report = |serial, ready| Some(TrainingReport { task: task(), serial, ready });
    let said = device.coordinator.world(|world| world.reports.clone());
    let expected = [None, report(1, true), report(1, false), report(2, true), report(2, false), report(3, true)];
    assert_eq!(said, expected);
    for (delta, weight) in accepted(&device) {
        assert!((delta - 1.0 / 3.0).abs() < 1e-6 && weight == 7, "{delta} of {weight}: none is old");
    }
    let trained = device.events.iter().filter(|event| matches!(event, Event::Trained { .. })).count();
    assert_eq!(trained, ROUNDS as usize, "told once, when it was trained");
}

#[test]
fn an_old_update_counts_for_less_and_weighs_the_same() {
    for (behind, clip, expected) in
        [(1, None, 1.0 / 6.0), (2, None, 1.0 / 9.0), (2, Some(0.1), 0.1 / 5.0_f64.sqrt() / 3.0)]
    {
        let mut device =
            training_ahead(|world| (world.meanwhile, world.clip, world.rounds) = (behind, clip, behind + 1));
        assert!(device.run(MOST, |_| None) < MOST);
        let [(delta, weight)] = accepted(&device)[..] else { panic!("one update") };
        assert!((delta - expected).abs() < 1e-6, "{delta} instead of {expected}: {behind} behind, clipped to {clip:?}");
        assert_eq!(weight, 7);
    }
}

#[test]
fn killed_at_every_action_it_sends_an_update_once_or_not_at_all() {
    for personal in [false, true] {
        let fresh = || training_ahead(|world| world.personal = personal);
        let actions = fresh().run(MOST, |_| None);
        assert!((20..MOST).contains(&actions), "{actions}");
        for at in 0..actions {
            for effect in EFFECTS {
                let mut device = fresh();
                let what = format!("killed at {at}, effect {effect:?}, personal {personal}");
                assert!(device.run(MOST, |number| (number == at).then_some(effect)) < MOST, "{what}");
                device.coordinator.world(|world| {
                    assert_eq!(world.accepted.len(), ROUNDS as usize, "{what}");
                    assert!(world.stored.values().all(|times| *times == 1), "{what}: each round once");
                    for (round, sent) in &world.sent {
                        assert!(sent.iter().all(|body| *body == world.accepted[round]), "{what}: other bytes");
                    }
                });
                // The head was trained exactly once for each update sent.
                for model in device.trainer.seen.lock().unwrap().iter().filter(|_| personal) {
                    assert!((model[3] - model[0] / 3.0).abs() < 1e-6, "{what}: {model:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_too_old_is_thrown_away_and_trained_again() {
    let mut device = training_ahead(|world| (world.discards, world.rounds) = (1, 1));
    assert!(device.run(MOST, |_| None) < MOST);
    let discarded = Event::Discarded { task: task(), serial: 1, reason: DiscardReason::TooStale };
    assert!(device.events.contains(&discarded), "{:?}", device.events);
    assert_eq!(device.trainer.seen.lock().unwrap().len(), 2);
    let said = device.coordinator.world(|world| world.reports.clone());
    assert_eq!(said[2], Some(TrainingReport { task: task(), serial: 1, ready: false }));
    assert_eq!(accepted(&device).len(), 1);
}

/// Versions above the round's, older than the bound, without a rule or with one that makes updates grow.
#[test]
fn a_coordinator_cannot_make_an_update_count_for_more_or_have_another() {
    type Spoil = fn(&mut Assignment);
    let spoils: [(&str, Spoil); 10] = [
        ("newer than the round", |it| it.update.iter_mut().for_each(|update| update.version = it.base.version + 1)),
        ("older than the task allows", |it| {
            it.base.version += 9;
        }),
        ("does not say what one counts for", |it| it.encoding.staleness = None),
        ("rule for old ones", |it| it.encoding.staleness.iter_mut().for_each(|rule| rule.p = -1.0)),
        ("does not hold", |it| it.update.iter_mut().for_each(|update| update.serial += 1)),
        // Some got a tiny learning rate: the round's members agree on one plan.
        ("not those of all versions", |it| it.base.version += 1),
        ("not trained as the round says", |it| {
            if it.update.is_some() {
                it.training.learning_rate *= 1000.0;
            }
        }),
        ("does not hold", |it| {
            it.base.version += 1;
            it.earlier.push(Digest([1; 32]));
            it.update.iter_mut().for_each(|update| update.version += 1);
        }),
        ("other bytes of version 0", |it| {
            if it.update.is_some() {
                it.base.sha256 = Digest([1; 32]);
            }
        }),
        ("other bytes of version 0", |it| {
            it.base.version += 1;
            it.earlier.push(Digest([1; 32]));
        }),
    ];
    for (expected, spoil) in spoils {
        let mut device = training_ahead(|world| (world.tweak, world.rounds) = (Some(spoil), 1));
        device.run(MOST, |_| None);
        let failed = |event: &Event| match event {
            Event::TrainingFailed { error: told, .. } | Event::Refused { reason: told, .. } => told.contains(expected),
            _ => false,
        };
        assert!(device.events.iter().any(failed), "{expected}: {:?}", device.events);
        assert!(device.coordinator.world(|world| world.sent.is_empty()), "{expected}");
    }
}

/// With a forged late round, a falling schedule would give a participant a tiny learning rate.
#[test]
fn schedules_follow_the_version_not_the_round_that_one_is_told() {
    let falls: fn(&mut Assignment) =
        |it| it.training.schedule = Some(Schedule::Exponential { factor: 0.5, over: Over::Rounds });
    let late: fn(&mut Assignment) = |it| {
        it.training.schedule = Some(Schedule::Exponential { factor: 0.5, over: Over::Rounds });
        it.round += 1000;
    };
    let mut device =
        training_ahead(|world| (world.tweak, world.tweak_training, world.rounds) = (Some(falls), Some(late), 2));
    device.run(MOST, |_| None);
    assert_eq!(device.coordinator.world(|world| world.sent.len()), 2, "{:?}", device.events);
    assert_eq!(*device.trainer.rates.lock().unwrap(), [0.1, 0.05]);
}

#[test]
fn nothing_is_trained_ahead_that_would_be_refused_in_the_round() {
    let mut device = training_ahead(|_| {});
    device.settings.security = SecurityPolicy::default();
    device.restart();
    device.run(100, |_| None);
    let refused =
        |event: &Event| matches!(event, Event::Refused { reason, .. } if reason.contains("secure aggregation"));
    assert!(device.events.iter().any(refused), "{:?}", device.events);
    assert!(device.trainer.seen.lock().unwrap().is_empty());
    let waits = device.events.iter().filter(|event| matches!(event, Event::Retry { .. })).count();
    assert!(waits > 10, "it does not ask in a storm");
}

#[test]
fn a_training_that_is_given_up_is_told_with_the_next_check_in() {
    let mut device = training_ahead(|_| {});
    let mut input = Input::Tick;
    let fetch = loop {
        match device.poll(input) {
            action @ Action::Fetch { .. } => break action,
            action => input = device.perform(action),
        }
    };
    input = device.perform(fetch);
    device.machine.set_readiness(Readiness::NotReady { ask_again: Duration::from_secs(60) });
    // The model is kept for the app all the same.
    let keeps = device.poll(input);
    assert!(matches!(keeps, Action::Persist(_)));
    input = device.perform(keeps);
    let Action::WaitUntil(until) = device.poll(input) else { panic!("it goes on") };
    assert!(device.events.iter().any(|event| matches!(event, Event::Abandoned { .. })), "{:?}", device.events);
    assert_eq!(device.coordinator.count("abandon"), 0, "no round waits for it");
    (device.now, input) = (until, Input::Tick);
    device.machine.set_readiness(Readiness::Ready);
    let action = device.poll(input);
    device.perform(action);
    let said = device.coordinator.world(|world| world.reports.last().copied());
    assert_eq!(said, Some(Some(TrainingReport { task: task(), serial: 1, ready: false })));
}

/// Continues until it checks in, and returns the check-in.
fn until_check_in(device: &mut Device, mut input: Input) -> CheckInRequest {
    for _ in 0..MOST {
        match device.poll(input) {
            Action::Send(Request::CheckIn(request)) => return request,
            Action::Finished(_) => panic!("it is over"),
            action => input = device.perform(action),
        }
    }
    panic!("it does not check in");
}

/// One that holds a finished update, and has said so.
fn with_update(change: impl FnOnce(&mut crate::support::World)) -> Device {
    let mut device = training_ahead(change);
    let mut input = Input::Tick;
    loop {
        let request = until_check_in(&mut device, input);
        if request.training.is_some_and(|report| report.ready) {
            return device;
        }
        input = device.perform(Action::Send(Request::CheckIn(request)));
    }
}

fn answered(reply: CheckInReply) -> Input {
    Input::Response(Response::CheckedIn(Ok(reply)))
}

fn other_task() -> TaskId {
    "00000000-0000-0000-0000-00000000000c".parse().unwrap()
}

/// A training of another task.
fn another(device: &Device) -> Box<Assignment> {
    let mut assignment = device.coordinator.world(|world| Coordinator::assignment(world));
    (assignment.task, assignment.attempt) = (other_task(), 4);
    assignment.encoding.staleness = Some(Staleness { a: 1.0, p: 1.0, max: 3 });
    Box::new(assignment)
}

#[test]
fn an_update_is_let_go_with_its_task() {
    for (over, expected) in [(task(), false), (other_task(), true)] {
        let mut device = with_update(|world| world.personal = true);
        let mut input = answered(CheckInReply::TaskOver { task: over, model: None });
        loop {
            match device.poll(input) {
                Action::Finished(result) => break assert_eq!(result.unwrap(), Outcome::TaskOver { task: over }),
                action => input = device.perform(action),
            }
        }
        let discarded = Event::Discarded { task: task(), serial: 1, reason: DiscardReason::Unknown };
        assert_eq!(device.events.contains(&discarded), !expected);
        assert_eq!(
            device.journal.load(&snapshot::personal(task())).unwrap().is_some(),
            !expected,
            "what is personal stays"
        );
        device.restart();
        let said = until_check_in(&mut device, Input::Tick).training;
        assert_eq!(said.is_some(), expected, "{said:?}");
    }
}

#[test]
fn an_update_is_let_go_before_a_training_for_another_task() {
    let mut device = with_update(|_| {});
    let assignment = another(&device);
    let Action::Persist(records) = device.poll(answered(CheckInReply::Train(assignment))) else {
        panic!("it holds two updates");
    };
    assert_eq!(records[0].name, snapshot::UPDATE);
    let input = device.perform(Action::Persist(records));
    let Action::Fetch { task, .. } = device.poll(input) else { panic!("it does not train") };
    assert_eq!(task, other_task());
    device.machine.set_readiness(Readiness::NotReady { ask_again: Duration::from_secs(60) });
    let Action::WaitUntil(until) = device.poll(Input::Tick) else { panic!("it goes on") };
    device.machine.set_readiness(Readiness::Ready);
    device.now = until;
    let said = until_check_in(&mut device, Input::Tick).training;
    assert_eq!(
        said,
        Some(TrainingReport { task: other_task(), serial: 4, ready: false }),
        "that nothing came of it is not hidden"
    );
}

#[test]
fn nothing_is_trained_ahead_for_a_session_that_would_be_declined() {
    let policy = SecurityPolicy { max_staleness: 3, ..SecurityPolicy::lowest() };
    let floors = [
        ("min_cohort", SecurityPolicy { min_cohort: 4, ..policy }),
        ("max_corrupt", SecurityPolicy { min_tolerated_corrupt: 0.2, ..policy }),
        ("tolerated_colluders", SecurityPolicy { min_tolerated_colluders: 1, ..policy }),
        ("min_included", SecurityPolicy { min_included: 4, ..policy }),
        ("up to 3 versions behind", SecurityPolicy { max_staleness: 2, ..policy }),
    ];
    for (limit, security) in floors {
        let mut device = training_ahead(|_| {});
        device.settings.security = security;
        device.restart();
        until_check_in(&mut device, Input::Tick);
        let mut assignment = another(&device);
        assignment.secure_aggregation = Some(SessionTerms::from(&SessionConfig {
            suite: 1,
            min_cohort: 3,
            max_cohort: 10,
            max_corrupt: 100_000,
            max_dropout: 300_000,
            min_included: 3,
            model: VectorShape { words: 8, modulus_bits: 32, input_bound: 1 << 20, noise_margin: 0 },
            scalars: VectorShape::NONE,
            application: [0; 32],
        }));
        let said = until_check_in(&mut device, answered(CheckInReply::Train(assignment))).training;
        assert_eq!(said, Some(TrainingReport { task: other_task(), serial: 4, ready: false }));
        let refused = |event: &Event| matches!(event, Event::Refused { reason, .. } if reason.contains(limit));
        assert!(device.events.iter().any(refused), "{limit}: {:?}", device.events);
        assert!(device.trainer.seen.lock().unwrap().is_empty());
    }
}

#[test]
fn nothing_is_trained_ahead_for_a_task_that_wants_other_devices() {
    let mut device = training_ahead(|_| {});
    until_check_in(&mut device, Input::Tick);
    let criterion = Criterion { attribute: "examples".into(), at_least: Some(8.0), ..Criterion::default() };
    let question = Question { task: other_task(), criteria: vec![criterion] };
    let asked = answered(CheckInReply::Asked { questions: vec![question] });
    let said = until_check_in(&mut device, asked);
    assert!(!said.findings[0].eligible);
    let assignment = another(&device);
    let said = until_check_in(&mut device, answered(CheckInReply::Train(assignment))).training;
    assert_eq!(said, Some(TrainingReport { task: other_task(), serial: 4, ready: false }));
    assert!(device.trainer.seen.lock().unwrap().is_empty());
}

/// In the clear a round that failed is not spent, and each of its attempts is charged.
#[test]
fn the_serial_of_a_training_is_no_attempt_that_was_charged() {
    let mut device = with_update(|world| {
        world.privacy = Some(crate::support::private::terms("central_gaussian"));
        world.attempt = 2;
    });
    let mut input = Input::Tick;
    let request = loop {
        let request = until_check_in(&mut device, input);
        if request.training.is_some_and(|report| !report.ready) {
            break request;
        }
        input = device.perform(Action::Send(Request::CheckIn(request)));
    };
    assert_eq!(request.training.unwrap().serial, 1);
    assert_eq!(device.machine.privacy_spent()[0].releases, 1, "attempt 2 at round 1");
    device.coordinator.world(|world| (world.rounds_done, world.attempt) = (0, 3));
    let mut assignment = another(&device);
    (assignment.task, assignment.attempt) = (task(), 2);
    let action = device.poll(answered(CheckInReply::Train(assignment)));
    assert!(matches!(action, Action::Fetch { .. }), "{:?}", device.events);
}

#[test]
fn what_a_codec_left_out_is_sent_with_a_later_update_and_once_whenever_it_dies() {
    let fresh = || training_ahead(|world| world.codec = Some(crate::support::one_of_five()));
    let actions = fresh().run(MOST, |_| None);
    for at in 0..actions {
        for effect in EFFECTS {
            let mut device = fresh();
            let what = format!("killed at {at}, effect {effect:?}");
            assert!(device.run(MOST, |number| (number == at).then_some(effect)) < MOST, "{what}");
            let (sent, left) = crate::support::sent_and_left(&device.coordinator, &*device.journal);
            // Each value was nudged by a third in each of three updates; three of the five were sent once.
            assert_eq!(sent.iter().filter(|value| **value > 0.0).count(), 3, "{what}: {sent:?}");
            for (sent, left) in sent.iter().zip(&left) {
                assert!((sent + left - 1.0).abs() < 1e-5, "{what}: {sent} + {left}");
            }
        }
    }
}
