//! An app is killed at every action, before and after the action took effect: the same bytes are sent, or none, and every
//! round counts once.
#![expect(clippy::unwrap_used, reason = "a test")]

mod support;

use std::collections::HashSet;
use std::time::Duration;

use client_sdk::clock::Now;
use client_sdk::identity::SigningKey;
use client_sdk::journal::{Journal, MemoryJournal};
use client_sdk::participant::machine::{Action, Input, Machine, Saved};
use client_sdk::participant::snapshot;
use client_sdk::transport::Transport;
use client_sdk::{Outcome, Trainer};
use futures_util::FutureExt;
use rcgen::PublicKeyData;
use support::{Coordinator, Fault, Nudge, answer, in_the_clear, secrets};
use wire::Timestamp;
use zeroize::Zeroizing;

/// What becomes of the action during which a process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    None,
    /// Of several records only the first is written.
    Partial,
    Whole,
}

const EFFECTS: [Effect; 3] = [Effect::None, Effect::Partial, Effect::Whole];

/// One process after another on one journal.
struct Device {
    journal: MemoryJournal,
    trainer: Nudge,
    coordinator: Coordinator,
    /// Gives every process other randomness, so that only the journal can make bytes the same.
    processes: u8,
    now: Duration,
}

impl Device {
    fn new(coordinator: Coordinator) -> Self {
        Self {
            journal: MemoryJournal::new(),
            trainer: Nudge::default(),
            coordinator,
            processes: 0,
            now: Duration::ZERO,
        }
    }

    fn start(&mut self) -> Machine {
        self.processes += 1;
        let load = |name| self.journal.load(name).unwrap();
        let saved = Saved {
            identity: load(snapshot::IDENTITY),
            next_key: load(snapshot::NEXT_KEY),
            round: load(snapshot::ROUND),
            privacy: load(snapshot::PRIVACY),
            update: load(snapshot::UPDATE),
            given: load(snapshot::GIVEN),
        };
        let token = Some(Zeroizing::new("token".to_owned()));
        let (entropy, secrets) = ([self.processes; 32], secrets([self.processes; 32]));
        Machine::new(in_the_clear(), token, &saved, SigningKey::generate, entropy, secrets).unwrap()
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

    /// Runs to the end; `is_killed(n)` says whether the process dies at action number `n`, and what becomes of the
    /// action. Returns the number of actions.
    fn run(&mut self, is_killed: impl Fn(usize) -> Option<Effect>) -> usize {
        let mut machine = self.start();
        let mut input = Input::Tick;
        for number in 0.. {
            assert!(number < 2000, "it does not come to an end");
            machine.set_examples(self.trainer.examples());
            let action = machine.poll(input, Now { elapsed: self.now, wall: Timestamp(0) });
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
        unreachable!("the loop has no end")
    }
}

const ROUNDS: u32 = 3;

fn check(coordinator: &Coordinator, what: &str) {
    coordinator.world(|world| {
        assert_eq!(world.accepted.len(), ROUNDS as usize, "{what}: every round is answered");
        assert!(world.stored.values().all(|times| *times == 1), "{what}: each round once");
        for (round, sent) in &world.sent {
            assert!(sent.iter().all(|body| *body == world.accepted[round]), "{what}: other bytes in round {round}");
        }
        assert!(world.abandoned.is_empty(), "{what}");
    });
}

fn fresh(personal: bool) -> Device {
    let coordinator = Coordinator::new(ROUNDS);
    coordinator.world(|world| world.personal = personal);
    Device::new(coordinator)
}

#[test]
fn killed_once_at_every_action() {
    for personal in [false, true] {
        let actions = fresh(personal).run(|_| None);
        assert!(actions > 15, "{actions}");
        for at in 0..actions {
            for effect in EFFECTS {
                let mut device = fresh(personal);
                device.run(|number| (number == at).then_some(effect));
                check(&device.coordinator, &format!("killed at {at}, effect {effect:?}, personal {personal}"));
            }
        }
    }
}

#[test]
fn killed_again_and_again() {
    for every in 7..20 {
        for effect in EFFECTS {
            let mut device = fresh(true);
            device.run(|number| (number % every == every - 1).then_some(effect));
            check(&device.coordinator, &format!("killed every {every}, effect {effect:?}"));
        }
    }
}

#[test]
fn every_process_rounds_differently_so_only_the_journal_makes_bytes_equal() {
    let first_body = |entropy| {
        let mut device = fresh(false);
        device.processes = entropy;
        device.run(|_| None);
        device.coordinator.world(|world| world.accepted[&1].clone())
    };
    // A few parameters: two processes may round alike by chance, all of them do not.
    let bodies: HashSet<_> = (1..=16).map(first_body).collect();
    assert!(bodies.len() > 4, "{}", bodies.len());
}

#[test]
fn lost_answers_at_every_request_change_nothing() {
    for call in ["enroll", "check_in", "fetch", "upload"] {
        for fault in [Fault::Lost, Fault::AnswerLost] {
            for nth in 0..3 {
                let mut device = fresh(false);
                let script = std::iter::repeat_n(Fault::None, nth).chain(std::iter::repeat_n(fault.clone(), 2));
                device.coordinator.script(call, script);
                device.run(|_| None);
                check(&device.coordinator, &format!("{call} {nth} {fault:?}"));
            }
        }
    }
}

#[test]
fn the_key_is_the_same_in_every_attempt_to_enrol() {
    let mut device = fresh(false);
    device.coordinator.script("enroll", [Fault::AnswerLost]);
    // Dies after the first request, whose answer was lost.
    device.run(|number| (number == 1).then_some(Effect::Whole));
    let keys: Vec<_> = device.coordinator.world(|world| {
        let parse = |pem: &String| rcgen::CertificateSigningRequestParams::from_pem(pem).unwrap();
        world.keys.iter().map(|pem| parse(pem).public_key.der_bytes().to_vec()).collect()
    });
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}

#[test]
fn the_personal_part_advances_once_per_round_whenever_it_dies() {
    let actions = fresh(true).run(|_| None);
    for at in 0..actions {
        for effect in EFFECTS {
            let mut device = fresh(true);
            device.run(|number| (number == at).then_some(effect));
            // The head was nudged by a third in each earlier round, and only there.
            for model in device.trainer.seen.lock().unwrap().iter() {
                let round = model[0];
                assert!((model[3] - round / 3.0).abs() < 1e-6, "killed at {at}, effect {effect:?}: {model:?}");
            }
        }
    }
}

#[test]
fn what_a_codec_left_out_is_sent_later_and_once_whenever_it_dies() {
    let fresh = || {
        let device = fresh(false);
        device.coordinator.world(|world| world.codec = Some(support::one_of_five()));
        device
    };
    let actions = fresh().run(|_| None);
    for at in 0..actions {
        for effect in EFFECTS {
            let mut device = fresh();
            device.run(|number| (number == at).then_some(effect));
            check(&device.coordinator, &format!("killed at {at}, effect {effect:?}"));
            let (sent, left) = support::sent_and_left(&device.coordinator, &device.journal);
            // Each value was nudged by a third in each of three rounds; three of the five were sent once.
            assert_eq!(sent.iter().filter(|value| **value > 0.0).count(), 3, "{sent:?}");
            for (sent, left) in sent.iter().zip(&left) {
                assert!((sent + left - 1.0).abs() < 1e-5, "killed at {at}, effect {effect:?}: {sent} + {left}");
            }
        }
    }
}
