//! A participant of a secure round is killed at every action, before and after its effect, or notified that its round
//! has ended. It sends the same bytes or stays silent, each update counts once, and secrets end with their round.

use client_sdk::conditions::Readiness;
use client_sdk::journal::Journal as _;
use client_sdk::participant::machine::Action;
use client_sdk::participant::snapshot;
use client_sdk::{Event, Outcome};
use wire::RoundState;
use wire::problem::ProblemType;

use crate::support::cohort::Hub;
use crate::support::device::{
    Device, EFFECTS, check, check_sums, cohort, finish, fresh, is_empty_of_secrets, published, refusals, run, run_until,
};
use crate::support::{Fault, task};

/// How far a participant has come.
type Reached = fn(&Event) -> bool;

#[test]
fn killed_once_at_every_action_it_says_the_same_and_the_sum_is_the_same() {
    for personal in [false, true] {
        let (hub, mut devices) = fresh(personal);
        finish(&hub, &mut devices);
        check(&hub, &devices, "undisturbed");
        let actions = devices[0].actions;
        assert!(actions > 40, "{actions}");
        for at in 0..actions {
            for effect in EFFECTS {
                let (hub, mut devices) = fresh(personal);
                run(&mut devices, |device, number| (device == 0 && number == at).then_some(effect));
                check(&hub, &devices, &format!("killed at {at}, effect {effect:?}, personal {personal}"));
            }
        }
    }
}

#[test]
fn all_killed_again_and_again() {
    for every in 11..24 {
        for effect in EFFECTS {
            let (hub, mut devices) = fresh(true);
            run(&mut devices, |device, number| ((number + device) % every == every - 1).then_some(effect));
            check(&hub, &devices, &format!("killed every {every}, effect {effect:?}"));
        }
    }
}

#[test]
fn lost_requests_and_lost_answers_change_nothing() {
    let calls = ["check_in", "roster", "key_shares", "fetch", "delivery", "upload", "survivors", "consistency"];
    for call in calls.into_iter().chain(["agreement", "unmask_shares"]) {
        for fault in [Fault::Lost, Fault::AnswerLost] {
            for nth in 0..2 {
                let (hub, mut devices) = fresh(false);
                let script = std::iter::repeat_n(Fault::None, nth).chain(std::iter::repeat_n(fault.clone(), 2));
                hub.world(|world| world.faults.insert((0, call), script.collect()));
                finish(&hub, &mut devices);
                check(&hub, &devices, &format!("{call} {nth} {fault:?}"));
            }
        }
    }
}

#[test]
fn whoever_is_told_that_the_round_is_over_goes_on_with_the_next_and_keeps_no_secret() {
    for call in ["roster", "key_shares", "delivery", "upload", "survivors", "consistency", "agreement", "unmask_shares"]
    {
        for kind in [ProblemType::PhaseClosed, ProblemType::NotAssigned, ProblemType::DifferentMessage] {
            let hub = Hub::new(5, 2);
            hub.world(|world| world.faults.insert((0, call), [Fault::Refused(kind, None)].into()));
            let mut devices = cohort(&hub);
            // It has left the round, and the others do not wait for it.
            let state = match call {
                "roster" | "key_shares" => RoundState::Sharing,
                "delivery" | "upload" => RoundState::Collecting,
                "survivors" | "consistency" => RoundState::Confirming,
                _ => RoundState::Unmasking,
            };
            let is_over = |event: &Event| matches!(event, Event::RoundOver { place, .. } if place.round == 1);
            for _ in 0..200 {
                for device in &mut devices {
                    device.step(None);
                }
                if devices[0].events.iter().any(is_over) {
                    break;
                }
            }
            assert!(devices[0].events.iter().any(is_over), "{call} {kind:?}");
            devices[0].step(None);
            assert!(is_empty_of_secrets(&devices[0]), "{call} {kind:?}");
            hub.world(|world| {
                world.give_up(0);
                world.settle();
            });
            finish(&hub, &mut devices);
            check_sums(&hub, call);
            let round_1 = if state > RoundState::Collecting { vec![0, 1, 2, 3, 4] } else { vec![1, 2, 3, 4] };
            assert_eq!(published(&hub), [(1, round_1), (2, vec![0, 1, 2, 3, 4])], "{call} {kind:?}");
        }
    }
}

#[test]
fn a_later_attempt_is_joined_with_fresh_keys_unless_an_input_was_sent() {
    // The last event of the first attempt, and whether the device joins a second one. A member with its masks continues to train and
    // may have sent before it hears of another attempt; a killed process loses its masks and cannot.
    let stages: [(&str, Reached, [bool; 2]); 4] = [
        ("keys", |event| matches!(event, Event::Invited { .. }), [true, true]),
        ("shares", |event| matches!(event, Event::Shared { .. }), [true, true]),
        ("delivered", |event| matches!(event, Event::Delivered { .. }), [false, true]),
        ("trained", |event| matches!(event, Event::Trained { .. }), [false, false]),
    ];
    for (what, is_reached, is_joined) in stages {
        for (restarted, is_joined) in [false, true].into_iter().zip(is_joined) {
            let hub = Hub::new(3, 2);
            let mut devices = cohort(&hub);
            run_until(&mut devices, |device| device.events.iter().any(is_reached));
            hub.world(|world| world.open(1, 2));
            if restarted {
                devices.iter_mut().for_each(Device::restart);
            }
            let first: Vec<_> = devices.iter().map(|device| device.actions).collect();
            for _ in 0..400 {
                devices.iter_mut().filter(|device| device.ended.is_none()).for_each(|device| device.step(None));
            }
            assert!(devices.iter().zip(first).all(|(device, first)| device.actions >= first));
            let keys = |attempt| hub.world(|world| world.said.get(&(1, attempt, "keys", 0)).cloned());
            if is_joined {
                assert_ne!(keys(1), keys(2), "{what}, {restarted}");
                assert_eq!(published(&hub), [(1, vec![0, 1, 2]), (2, vec![0, 1, 2])], "{what}, {restarted}");
                check_sums(&hub, what);
            } else {
                assert_eq!(keys(2), None, "{what}, {restarted}");
                assert!(published(&hub).is_empty(), "{what}, {restarted}");
                let refused: Vec<_> = devices.iter().flat_map(refusals).collect();
                assert!(refused.iter().all(|reason| reason.contains("was sent before")), "{refused:?}");
                assert_eq!(refused.len(), 3, "told once: {refused:?}");
                // The next round is joined.
                hub.world(|world| world.open(2, 1));
                finish(&hub, &mut devices);
                assert_eq!(published(&hub), [(2, vec![0, 1, 2])], "{what}, {restarted}");
            }
        }
    }
}

#[test]
fn a_model_that_is_swapped_after_a_restart_is_not_trained_on() {
    let hub = Hub::new(3, 1);
    let mut devices = cohort(&hub);
    run_until(&mut devices, |device| device.events.iter().any(|event| matches!(event, Event::Shared { .. })));
    hub.world(|world| world.tweak = Some(|assignment| assignment.base.sha256.0[0] ^= 1));
    devices[0].restart();
    run_until(&mut devices[..1], |device| !refusals(device).is_empty());
    assert!(refusals(&devices[0])[0].contains("another model"), "{:?}", refusals(&devices[0]));
    assert!(devices[0].trainer.seen.lock().unwrap().is_empty());
}

#[test]
fn what_an_update_was_sent_for_is_remembered_beyond_the_next_round() {
    let hub = Hub::new(3, 2);
    let mut devices = cohort(&hub);
    finish(&hub, &mut devices);
    hub.world(|world| {
        world.rounds = 9;
        world.open(1, 7);
    });
    devices.iter_mut().for_each(Device::restart);
    for _ in 0..30 {
        devices.iter_mut().for_each(|device| device.step(None));
    }
    assert!(devices.iter().all(|device| refusals(device)[0].contains("was sent before")));
}

#[test]
fn a_participant_whose_conditions_end_gives_up_before_the_input_and_waits_after_it() {
    let not_ready = Readiness::NotReady { ask_again: std::time::Duration::from_secs(60) };
    let stages: [(Reached, bool); 3] = [
        (|event| matches!(event, Event::Assigned { .. }), true),
        (|event| matches!(event, Event::Shared { .. }), true),
        (|event| matches!(event, Event::Uploaded { .. }), false),
    ];
    for (is_reached, gives_up) in stages {
        let hub = Hub::new(4, 1);
        let mut devices = cohort(&hub);
        run_until(&mut devices, |device| device.events.iter().any(is_reached));
        devices[0].machine.set_readiness(not_ready);
        for _ in 0..20 {
            devices[0].step(None);
        }
        let calls = hub.world(|world| world.calls.len());
        devices[0].step(None);
        assert_eq!(hub.world(|world| world.calls.len()), calls, "nothing is sent");
        assert_eq!(hub.world(|world| world.abandoned.clone()), vec![(0, 1, "conditions"); usize::from(gives_up)]);
        devices[0].machine.set_readiness(Readiness::Ready);
        finish(&hub, &mut devices);
        check_sums(&hub, "conditions");
        assert_eq!(published(&hub)[0].1.contains(&0), !gives_up);
    }
}

#[test]
fn an_app_that_stops_after_the_input_leaves_the_rest_to_the_next_process() {
    use client_sdk::participant::machine::Input;
    let (hub, mut devices) = fresh(false);
    run_until(&mut devices, |device| device.events.iter().any(|event| matches!(event, Event::Uploaded { .. })));
    let now = client_sdk::clock::Now { elapsed: std::time::Duration::MAX, wall: crate::support::cohort::TODAY };
    let mut action = devices[0].machine.poll(Input::Shutdown, now);
    while let Action::Persist(records) = &action {
        let saved = records.iter().try_for_each(|record| devices[0].journal.save(&record.name, &record.content()));
        action = devices[0].machine.poll(Input::Persisted(saved), now);
    }
    assert!(matches!(action, Action::Finished(Ok(Outcome::Stopped))));
    assert!(devices[0].journal.load(snapshot::ROUND).unwrap().is_some());
    devices[0].restart();
    finish(&hub, &mut devices);
    check(&hub, &devices, "stopped");
    assert_eq!(task(), hub.world(|world| world.assignment().task));
}
