//! An app is killed at every action, before and after the action took effect: it sends the same bytes, or stays silent,
//! and every round counts once.

use std::collections::HashSet;
use std::sync::Arc;

use client_sdk::journal::MemoryJournal;
use rcgen::PublicKeyData;

use crate::support::device::{EFFECTS, Effect};
use crate::support::trainers::Nudge;
use crate::support::{Coordinator, Fault, in_the_clear};

type Device = crate::support::device::Device<Coordinator, Nudge>;

const MOST: usize = 2000;
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
    Device::with(Arc::new(MemoryJournal::new()), 0, coordinator, Nudge::default(), in_the_clear())
}

/// Runs to the end; `kill` returns whether the process dies at the action with this number. Returns the number of actions.
fn run(device: &mut Device, kill: impl Fn(usize) -> Option<Effect>) -> usize {
    let actions = device.run(MOST, kill);
    assert!(actions < MOST, "it does not come to an end");
    actions
}

#[test]
fn killed_once_at_every_action() {
    for personal in [false, true] {
        let actions = run(&mut fresh(personal), |_| None);
        assert!(actions > 15, "{actions}");
        for at in 0..actions {
            for effect in EFFECTS {
                let mut device = fresh(personal);
                run(&mut device, |number| (number == at).then_some(effect));
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
            run(&mut device, |number| (number % every == every - 1).then_some(effect));
            check(&device.coordinator, &format!("killed every {every}, effect {effect:?}"));
        }
    }
}

#[test]
fn every_process_rounds_differently_so_only_the_journal_makes_bytes_equal() {
    let first_body = |entropy| {
        let mut device = fresh(false);
        device.processes = entropy;
        device.restart();
        run(&mut device, |_| None);
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
                run(&mut device, |_| None);
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
    run(&mut device, |number| (number == 1).then_some(Effect::Whole));
    let keys: Vec<_> = device.coordinator.world(|world| {
        let parse = |pem: &String| rcgen::CertificateSigningRequestParams::from_pem(pem).unwrap();
        world.keys.iter().map(|pem| parse(pem).public_key.der_bytes().to_vec()).collect()
    });
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}

#[test]
fn the_personal_part_advances_once_per_round_whenever_it_dies() {
    let actions = run(&mut fresh(true), |_| None);
    for at in 0..actions {
        for effect in EFFECTS {
            let mut device = fresh(true);
            run(&mut device, |number| (number == at).then_some(effect));
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
        device.coordinator.world(|world| world.codec = Some(crate::support::one_of_five()));
        device
    };
    let actions = run(&mut fresh(), |_| None);
    for at in 0..actions {
        for effect in EFFECTS {
            let mut device = fresh();
            run(&mut device, |number| (number == at).then_some(effect));
            check(&device.coordinator, &format!("killed at {at}, effect {effect:?}"));
            let (sent, left) = crate::support::sent_and_left(&device.coordinator, &*device.journal);
            // Each value was nudged by a third in each of three rounds; three of the five were sent once.
            assert_eq!(sent.iter().filter(|value| **value > 0.0).count(), 3, "{sent:?}");
            for (sent, left) in sent.iter().zip(&left) {
                assert!((sent + left - 1.0).abs() < 1e-5, "killed at {at}, effect {effect:?}: {sent} + {left}");
            }
        }
    }
}
