//! A participant trains ahead of rounds and keeps the update: whenever it dies, the update is in one sum or in none, it is
//! aggregated without training again, and it counts for what its age says.
#![expect(clippy::unwrap_used, reason = "a test")]

mod support;

use std::time::Duration;

use client_sdk::clock::Now;
use client_sdk::conditions::Readiness;
use client_sdk::identity::SigningKey;
use client_sdk::journal::{Journal, MemoryJournal};
use client_sdk::learning::{Codec, ExactSum, QuantizationParams};
use client_sdk::participant::machine::{Action, Input, Machine, Saved, Settings};
use client_sdk::participant::snapshot;
use client_sdk::transport::Transport as _;
use client_sdk::{Event, Outcome, SecurityPolicy, Trainer as _};
use futures_util::FutureExt as _;
use secure_agg::modular::Modulus;
use secure_agg::packing;
use support::{Coordinator, Nudge, answer, in_the_clear, secrets, task};
use wire::Timestamp;
use wire::participant::{Assignment, DiscardReason, TrainingReport};
use zeroize::Zeroizing;

const ROUNDS: u32 = 3;

/// What becomes of the action during which a process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    None,
    /// Of several records only the first is written.
    Partial,
    Whole,
}

const EFFECTS: [Effect; 3] = [Effect::None, Effect::Partial, Effect::Whole];

struct Device {
    journal: MemoryJournal,
    trainer: Nudge,
    coordinator: Coordinator,
    settings: Settings,
    processes: u8,
    now: Duration,
    events: Vec<Event>,
}

impl Device {
    fn new(change: impl FnOnce(&mut support::World)) -> Self {
        let coordinator = Coordinator::new(ROUNDS);
        coordinator.world(|world| {
            world.ahead = true;
            change(world);
        });
        Self {
            journal: MemoryJournal::new(),
            trainer: Nudge::default(),
            coordinator,
            settings: in_the_clear(),
            processes: 0,
            now: Duration::ZERO,
            events: Vec::new(),
        }
    }

    fn start(&mut self) -> Machine {
        self.processes += 1;
        let load = |name| self.journal.load(name).unwrap();
        let saved = Saved {
            identity: load(snapshot::IDENTITY),
            round: load(snapshot::ROUND),
            privacy: load(snapshot::PRIVACY),
            update: load(snapshot::UPDATE),
        };
        let token = Some(Zeroizing::new("token".to_owned()));
        let (entropy, secrets) = ([self.processes; 32], secrets([self.processes; 32]));
        Machine::new(self.settings.clone(), token, &saved, SigningKey::generate, entropy, secrets).unwrap()
    }

    fn perform(&mut self, action: Action) -> Input {
        let coordinator = self.coordinator.clone();
        match action {
            Action::Send(request) => answer(&coordinator, request),
            Action::Fetch { task, model, mut have } => {
                let result = coordinator.fetch_model(task, &model, &mut have).now_or_never().unwrap();
                Input::Fetched { have, result }
            }
            Action::Train(work) => Input::Trained(work.run(&mut self.trainer)),
            Action::Load(name) => Input::Loaded(self.journal.load(&name)),
            Action::Persist(records) => Input::Persisted(
                records.iter().try_for_each(|record| self.journal.save(&record.name, &record.content())),
            ),
            Action::WaitUntil(moment) => {
                self.now = self.now.max(moment);
                Input::Tick
            }
            Action::Finished(_) => unreachable!("handled by the caller"),
        }
    }

    fn poll(&mut self, machine: &mut Machine, input: Input) -> Action {
        machine.set_examples(self.trainer.examples());
        let action = machine.poll(input, Now { elapsed: self.now, wall: Timestamp(0) });
        self.events.extend(machine.take_events());
        action
    }

    /// Runs to the end, or for so many actions; `is_killed(n)` says whether the process dies at action number `n`.
    fn run(&mut self, most: usize, is_killed: impl Fn(usize) -> Option<Effect>) -> usize {
        let mut machine = self.start();
        let mut input = Input::Tick;
        for number in 0..most {
            let action = self.poll(&mut machine, input);
            if let Action::Finished(result) = action {
                assert!(matches!(result.unwrap(), Outcome::TaskOver { .. }));
                return number;
            }
            input = match is_killed(number) {
                None => self.perform(action),
                Some(effect) => {
                    match (effect, action) {
                        (Effect::None, _) => {}
                        (Effect::Partial, Action::Persist(records)) => {
                            self.journal.save(&records[0].name, &records[0].content()).unwrap();
                        }
                        (_, action) => drop(self.perform(action)),
                    }
                    machine = self.start();
                    Input::Tick
                }
            };
        }
        most
    }

    /// The first value of the update and the weight, of each accepted input.
    fn accepted(&self) -> Vec<(f64, u32)> {
        let bodies = self.coordinator.world(|world| world.accepted.values().cloned().collect::<Vec<_>>());
        let encoding = self.coordinator.world(|world| Coordinator::assignment(world).encoding);
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
}

const MOST: usize = 500;

#[test]
fn it_trains_on_the_fetched_version_and_is_aggregated_without_training_again() {
    let mut device = Device::new(|_| {});
    assert!(device.run(MOST, |_| None) < MOST);
    assert_eq!(device.trainer.seen.lock().unwrap().len(), ROUNDS as usize, "one training a round");
    assert_eq!(device.coordinator.count("fetch"), ROUNDS as usize, "the round's own base is not needed");
    let report = |serial, ready| Some(TrainingReport { task: task(), serial, ready });
    let said = device.coordinator.world(|world| world.reports.clone());
    let expected = [None, report(1, true), report(1, false), report(2, true), report(2, false), report(3, true)];
    assert_eq!(said, expected);
    for (delta, weight) in device.accepted() {
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
        let mut device = Device::new(|world| (world.meanwhile, world.clip, world.rounds) = (behind, clip, behind + 1));
        assert!(device.run(MOST, |_| None) < MOST);
        let [(delta, weight)] = device.accepted()[..] else { panic!("one update") };
        assert!((delta - expected).abs() < 1e-6, "{delta} instead of {expected}: {behind} behind, clipped to {clip:?}");
        assert_eq!(weight, 7);
    }
}

#[test]
fn killed_at_every_action_it_sends_an_update_once_or_not_at_all() {
    for personal in [false, true] {
        let fresh = || Device::new(|world| world.personal = personal);
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
                // The head was nudged once for each update that was sent, and for no other.
                for model in device.trainer.seen.lock().unwrap().iter().filter(|_| personal) {
                    assert!((model[3] - model[0] / 3.0).abs() < 1e-6, "{what}: {model:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_too_old_is_thrown_away_and_trained_again() {
    let mut device = Device::new(|world| (world.discards, world.rounds) = (1, 1));
    assert!(device.run(MOST, |_| None) < MOST);
    let discarded = Event::Discarded { task: task(), serial: 1, reason: DiscardReason::TooStale };
    assert!(device.events.contains(&discarded), "{:?}", device.events);
    assert_eq!(device.trainer.seen.lock().unwrap().len(), 2);
    let said = device.coordinator.world(|world| world.reports.clone());
    assert_eq!(said[2], Some(TrainingReport { task: task(), serial: 1, ready: false }));
    assert_eq!(device.accepted().len(), 1);
}

/// Versions above the round's, older than the bound, without a rule or with one that makes updates grow.
#[test]
fn a_coordinator_cannot_make_an_update_count_for_more_or_have_another() {
    type Spoil = fn(&mut Assignment);
    let spoils: [(&str, Spoil); 6] = [
        ("newer than the round", |it| it.update.iter_mut().for_each(|update| update.version = it.base.version + 1)),
        ("older than the task allows", |it| {
            it.base.version += 9;
        }),
        ("does not say what one counts for", |it| it.encoding.staleness = None),
        ("rule for old ones", |it| it.encoding.staleness.iter_mut().for_each(|rule| rule.p = -1.0)),
        ("does not hold", |it| it.update.iter_mut().for_each(|update| update.serial += 1)),
        ("does not hold", |it| {
            it.base.version += 1;
            it.update.iter_mut().for_each(|update| update.version += 1);
        }),
    ];
    for (expected, spoil) in spoils {
        let mut device = Device::new(|world| (world.tweak, world.rounds) = (Some(spoil), 1));
        device.run(MOST, |_| None);
        let failed = |event: &Event| matches!(event, Event::TrainingFailed { error, .. } if error.contains(expected));
        assert!(device.events.iter().any(failed), "{expected}: {:?}", device.events);
        assert!(device.coordinator.world(|world| world.sent.is_empty()), "{expected}");
    }
}

#[test]
fn nothing_is_trained_ahead_that_would_be_refused_in_the_round() {
    let mut device = Device::new(|_| {});
    device.settings.security = SecurityPolicy::default();
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
    let mut device = Device::new(|_| {});
    let mut machine = device.start();
    let mut input = Input::Tick;
    let fetch = loop {
        match device.poll(&mut machine, input) {
            action @ Action::Fetch { .. } => break action,
            action => input = device.perform(action),
        }
    };
    input = device.perform(fetch);
    machine.set_readiness(Readiness::NotReady { ask_again: Duration::from_secs(60) });
    let Action::WaitUntil(until) = device.poll(&mut machine, input) else { panic!("it goes on") };
    assert!(device.events.iter().any(|event| matches!(event, Event::Abandoned { .. })), "{:?}", device.events);
    assert_eq!(device.coordinator.count("abandon"), 0, "no round waits for it");
    (device.now, input) = (until, Input::Tick);
    machine.set_readiness(Readiness::Ready);
    let action = device.poll(&mut machine, input);
    device.perform(action);
    let said = device.coordinator.world(|world| world.reports.last().copied());
    assert_eq!(said, Some(Some(TrainingReport { task: task(), serial: 1, ready: false })));
}
