//! Secure aggregation from the participants' side, against the real phases of the coordinator's: exact sums, drop-outs, and
//! every lie that a participant must not fall for. `secure_restart.rs` kills them at every action.

use std::sync::Arc;

use client_sdk::participant::WorkError;
use client_sdk::participant::machine::{Action, Input, Settings};
use client_sdk::transport::Request;
use client_sdk::{Event, SecurityPolicy};
use secure_agg::codec::Message as _;
use secure_agg::messages::{Agreement, Delivery, Roster, Survivors};
use task_spec::Initial;
use wire::RoundState;
use wire::participant::{Announcement, GroupTerms, RefusalCode, SessionTerms};
use wire::problem::ProblemType;

use crate::support::Fault;
use crate::support::cohort::Hub;
use crate::support::device::{
    Device, EFFECTS, Effect, check_sums, cohort, deal_garbage, finish, fresh, is_empty_of_secrets, published, refusals,
    run_until,
};
use crate::support::trainers::Exact;

#[test]
fn every_sum_is_that_of_its_survivors_whoever_drops_out_when() {
    let states = [None, Some(RoundState::Sharing), Some(RoundState::Collecting)];
    let states = states.into_iter().chain([Some(RoundState::Confirming), Some(RoundState::Unmasking)]);
    for (first, second) in states.clone().flat_map(|first| states.clone().map(move |second| (first, second))) {
        let hub = Hub::new(5, 2);
        let drops = [(1, first), (3, second)].into_iter().filter_map(|(device, state)| Some((device, state?)));
        hub.world(|world| world.drops = drops.collect());
        let mut devices = cohort(&hub);
        finish(&hub, &mut devices);
        let what = format!("{first:?} {second:?}");
        check_sums(&hub, &what);
        let is_in = |state: Option<RoundState>| state.is_none_or(|state| state > RoundState::Collecting);
        let mut survivors = vec![0, 2, 4];
        survivors.extend([(1, first), (3, second)].iter().filter(|(_, state)| is_in(*state)).map(|(device, _)| device));
        survivors.sort_unstable();
        let rest: Vec<usize> = (0..5).filter(|device| !hub.world(|world| world.drops.contains_key(device))).collect();
        assert_eq!(published(&hub), [(1, survivors), (2, rest)], "{what}");
        assert!(devices.iter().all(|device| refusals(device).is_empty()), "{what}");
        for device in devices.iter().filter(|device| device.ended.is_some()) {
            assert!(is_empty_of_secrets(device), "{what}: {:?}", String::from_utf8_lossy(&device.round_record()));
        }
    }
}

#[test]
fn a_training_whose_masks_were_taken_is_refused_before_it_trains_again() {
    let hub = Hub::new(3, 1);
    let mut devices = cohort(&hub);
    run_until(&mut devices, |device| !device.trainer.seen.lock().unwrap().is_empty());
    let Action::Train(work) = devices[0].poll(Input::Tick) else { panic!("its result was not taken yet") };
    let mut trainer = devices[0].trainer.clone();
    assert!(matches!(work.run(&mut trainer), Err(WorkError::MasksUsed)));
    assert_eq!(trainer.seen.lock().unwrap().len(), 1);
    finish(&hub, &mut devices);
    check_sums(&hub, "after the second run");
}

#[test]
fn an_observer_is_told_how_many_took_part_in_each_phase() {
    let hub = Hub::new(5, 1);
    hub.world(|world| world.drops = [(1, RoundState::Collecting), (3, RoundState::Sharing)].into());
    let mut devices = cohort(&hub);
    finish(&hub, &mut devices);
    let events = &devices[0].events;
    let told = |is: &dyn Fn(&Event) -> bool| events.iter().filter(|event| is(event)).count();
    assert_eq!(told(&|event| matches!(event, Event::Invited { place } if place.round == 1)), 1);
    assert_eq!(told(&|event| matches!(event, Event::Assigned { is_secure: true, .. })), 1);
    assert_eq!(told(&|event| matches!(event, Event::Shared { participants: 5, .. })), 1);
    assert_eq!(told(&|event| matches!(event, Event::Delivered { dealers: 4, .. })), 1);
    assert_eq!(told(&|event| matches!(event, Event::Confirmed { survivors: 3, .. })), 1);
    assert_eq!(told(&|event| matches!(event, Event::Unmasked { signers: 3, .. })), 1);
    assert_eq!(told(&|event| matches!(event, Event::TookPart { place } if place.round == 1)), 1);
    let missed = devices[1].events.iter().chain(&devices[3].events);
    assert!(!missed.into_iter().any(|event| matches!(event, Event::TookPart { .. })));
}

#[test]
fn a_message_that_is_never_taken_gives_up_the_place() {
    for call in ["key_shares", "consistency", "unmask_shares"] {
        let hub = Hub::new(5, 1);
        hub.world(|world| world.faults.insert((0, call), [Fault::Refused(ProblemType::SessionRejected, None)].into()));
        let mut devices = cohort(&hub);
        finish(&hub, &mut devices);
        assert_eq!(hub.world(|world| world.abandoned.clone()), [(0, 1, "refused")], "{call}");
        assert!(is_empty_of_secrets(&devices[0]), "{call}");
        check_sums(&hub, call);
    }
}

#[test]
fn a_participant_soon_learns_what_it_waits_for_though_it_is_invited_first() {
    let hub = Hub::new(2, 1);
    let mut devices = cohort(&hub);
    let mut asked = Vec::new();
    for _ in 0..30 {
        if let Action::Send(Request::CheckIn(request)) = devices[0].poll(Input::Tick) {
            asked.push((request.keys.is_some(), request.wait_ms));
        }
        devices[0].step(None);
    }
    asked.dedup();
    // Alone, it is invited, and then sent away.
    assert_eq!(asked, [(false, 1_500), (true, 1_500), (true, 25_000)]);
}

#[test]
fn keys_that_are_not_taken_are_forgotten_and_the_participant_goes_on() {
    let hub = Hub::new(4, 2);
    // The first check-in still lacks keys.
    let script = [Fault::None, Fault::Refused(ProblemType::SessionRejected, None)];
    hub.world(|world| world.faults.insert((0, "check_in"), script.into()));
    let mut devices = cohort(&hub);
    for _ in 0..12 {
        devices[0].step(None);
    }
    assert!(is_empty_of_secrets(&devices[0]));
    assert!(devices[0].ended.is_none());
    hub.world(|world| world.devices = 1);
}

#[test]
fn behind_secure_aggregation_a_loss_is_told_only_if_the_task_asks_and_the_app_agrees() {
    for (asked, agreed) in [(false, true), (true, false), (true, true)] {
        let hub = Hub::new(3, 2);
        hub.world(|world| world.tweak = asked.then_some(|assignment| assignment.report_loss = true));
        let settings = || policy(|policy| policy.tell_loss = agreed);
        let mut devices: Vec<_> = (0..3).map(|device| Device::new(device, &hub, settings())).collect();
        finish(&hub, &mut devices);
        let told: Vec<_> = devices[0].told.iter().flatten().map(|report| u8::from(report.level)).collect();
        assert_eq!(devices[0].told[0], None, "before it has trained there is nothing to tell");
        // The trainer's loss is one half: two levels below one.
        assert_eq!(told.first(), (asked && agreed).then_some(&18), "asked {asked}, agreed {agreed}");
    }
}

fn policy(change: impl FnOnce(&mut SecurityPolicy)) -> Settings {
    let mut settings = crate::support::settings();
    change(&mut settings.security);
    settings
}

#[test]
fn an_invitation_below_its_policy_is_declined_at_a_bounded_pace() {
    type Change = fn(&mut SecurityPolicy);
    let policies: [(&str, Change); 5] = [
        ("min_cohort is 3, and this participant takes part from 10 on", |policy| *policy = SecurityPolicy::default()),
        ("tolerated_colluders", |policy| policy.min_tolerated_colluders = 1),
        ("min_cohort", |policy| policy.min_cohort = 4),
        ("max_corrupt", |policy| policy.min_tolerated_corrupt = 0.1),
        ("min_included is 2, and this participant takes part from 3 on", |policy| policy.min_included = 3),
    ];
    for (limit, change) in policies {
        let hub = Hub::new(1, 1);
        let mut device = Device::new(0, &hub, policy(change));
        for _ in 0..100 {
            device.step(None);
        }
        let refusals = refusals(&device);
        assert_eq!(refusals.len(), 1, "told once: {refusals:?}");
        assert!(refusals[0].contains(limit) && refusals[0].starts_with("below_policy"), "{refusals:?}");
        let waits = device.events.iter().filter_map(|event| match event {
            Event::Retry { after, .. } => Some(after.as_secs()),
            _ => None,
        });
        assert!(waits.max().unwrap() >= 30, "it comes back ever later");
        assert!(device.records.is_empty(), "no keys were made");
    }
}

#[test]
fn a_declined_invitation_is_reported_at_once_and_then_for_a_while() {
    let hub = Hub::new(1, 1);
    let mut device = Device::new(0, &hub, policy(|policy| policy.min_cohort = 4));
    let (mut asked, mut waited) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        match device.poll(Input::Tick) {
            Action::Send(Request::CheckIn(request)) => asked.push(request.refusals),
            Action::WaitUntil(_) => waited.push(asked.len()),
            _ => {}
        }
        device.step(None);
    }
    asked.dedup();
    assert_eq!((asked[0].len(), asked[1].len()), (0, 1));
    assert_eq!(asked[1][0].reason, RefusalCode::Policy);
    assert!(waited.iter().all(|asked| *asked > 1), "it does not wait before it has reported that: {waited:?}");
}

#[test]
fn an_invitation_that_cannot_work_is_declined() {
    type Tweak = fn(&mut SessionTerms);
    let tweaks: [(&str, Tweak); 4] = [
        ("suite", |terms| terms.suite = 9),
        ("cohort", |terms| terms.min_cohort = 2),
        ("modulo", |terms| terms.input_bound = 1 << 40),
        ("words", |terms| terms.words = 0),
    ];
    for (words, tweak) in tweaks {
        let hub = Hub::new(1, 1);
        hub.world(|world| world.tweak_terms = Some(tweak));
        let mut device = Device::new(0, &hub, crate::support::settings());
        for _ in 0..20 {
            device.step(None);
        }
        let refusals = refusals(&device);
        assert!(refusals.len() == 1 && refusals[0].contains(words), "{words}: {refusals:?}");
        assert!(device.records.is_empty());
    }
}

#[test]
fn an_update_goes_out_uncovered_only_if_the_app_allows_it() {
    let hub = Hub::new(1, 1);
    hub.world(|world| world.plain = true);
    let mut device = Device::new(0, &hub, crate::support::settings());
    for _ in 0..40 {
        device.step(None);
    }
    assert!(refusals(&device)[0].contains("without secure aggregation"));
    assert_eq!(hub.world(|world| world.abandoned.clone()), [(0, 1, "refused")]);
    assert!(!hub.world(|world| world.calls.iter().any(|(_, call)| *call == "fetch" || *call == "upload")));

    hub.world(|world| world.open(1, 1));
    let mut device = Device::new(0, &hub, policy(|policy| policy.required = false));
    while !device.events.iter().any(|event| matches!(event, Event::Assigned { .. })) {
        device.step(None);
    }
    let told = |event: &Event| matches!(event, Event::Assigned { is_secure: false, .. });
    assert!(refusals(&device).is_empty() && device.events.iter().any(told));
}

#[test]
fn places_below_its_policy_are_given_up_ever_less_often() {
    let hub = Hub::new(1, 1);
    hub.world(|world| world.plain = true);
    let mut device = Device::new(0, &hub, crate::support::settings());
    let given_up = || hub.world(|world| world.abandoned.len());
    let mut at = Vec::new();
    for attempt in 1..=12 {
        hub.world(|world| world.open(1, attempt));
        let before = given_up();
        for _ in 0..1000 {
            if given_up() > before {
                break;
            }
            device.step(None);
        }
        assert_eq!(given_up(), before + 1, "attempt {attempt}");
        at.push(device.now);
    }
    let (early, late) = (at[3] - at[0], at[11] - at[8]);
    // Waits are random up to a bound that doubles from half a second to a minute.
    assert!(early <= std::time::Duration::from_millis(3500) && late > 2 * early, "{early:?}, {late:?}");
}

/// A cohort with forged assignments: all members refuse to deal shares.
fn refused_at_assignment(words: &str, spoil: impl FnOnce(&Hub)) {
    let hub = Hub::new(3, 1);
    let mut devices = cohort(&hub);
    let is_invited = |device: &Device| device.events.iter().any(|event| matches!(event, Event::Invited { .. }));
    while !devices.iter().all(is_invited) {
        devices.iter_mut().for_each(|device| device.step(None));
    }
    spoil(&hub);
    finish(&hub, &mut devices);
    for device in &devices {
        let refusals = refusals(device);
        let failures = device.events.iter().filter_map(|event| match event {
            Event::TrainingFailed { error, .. } => Some(error.clone()),
            _ => None,
        });
        let told: Vec<String> = refusals.into_iter().chain(failures).collect();
        assert!(told.len() == 1 && told[0].contains(words), "{words}: {told:?}");
        assert!(is_empty_of_secrets(device), "{words}");
    }
    hub.world(|world| {
        let is_said = |call: &str| world.calls.iter().any(|(_, made)| *made == call);
        assert!(!is_said("key_shares") && !is_said("upload"), "{words}");
        assert!(world.published.is_empty());
    });
}

#[test]
fn an_assignment_that_is_not_what_the_keys_were_made_for_is_refused() {
    refused_at_assignment("another configuration", |hub| {
        hub.world(|world| world.tweak = Some(|a| a.secure_aggregation.as_mut().unwrap().max_corrupt = 1));
    });
    refused_at_assignment("now the round is without", |hub| {
        hub.world(|world| world.tweak = Some(|a| a.secure_aggregation = None));
    });
    refused_at_assignment("no keys", |hub| {
        hub.world(|world| world.tweak = Some(|a| a.attempt = 2));
    });
}

#[test]
fn an_assignment_that_the_terms_do_not_cover_is_refused() {
    refused_at_assignment("another encoding", |hub| {
        hub.world(|world| world.tweak = Some(|a| a.encoding.clip_range = 0.5));
    });
    refused_at_assignment("another encoding", |hub| {
        hub.world(|world| world.tweak = Some(|a| a.metrics = vec!["loss".into(), "other".into()]));
    });
    refused_at_assignment("another number of words", |hub| {
        hub.world(|world| world.tweak = Some(|a| a.metrics = vec!["loss".into()]));
    });
    refused_at_assignment("another largest cohort", |hub| {
        hub.world(|world| world.tweak = Some(|a| a.encoding.max_cohort = 11));
    });
    refused_at_assignment("another modulus", |hub| {
        hub.world(|world| {
            world.tweak = Some(|a| (a.encoding.modulus_bits, a.encoding.max_weight) = (31, 50));
        });
    });
    // Groups are announced only now, when the keys belong to another session.
    refused_at_assignment("another size of a group", |hub| {
        hub.world(|world| world.tweak = Some(|a| a.encoding.groups = Some(GroupTerms { size: 4 })));
    });
    refused_at_assignment("another cohort", |hub| hub.world(|world| world.tweak = Some(|a| a.cohort = 2)));
    // If the others had a zero learning rate, the sum would be one participant's update.
    refused_at_assignment("training", |hub| hub.world(|world| world.tweak = Some(|a| a.training.learning_rate = 1e-9)));
    refused_at_assignment("training", |hub| hub.world(|world| world.tweak = Some(|a| a.training.proximal_mu = 1e9)));
    refused_at_assignment("training", |hub| hub.world(|world| world.tweak = Some(|a| a.base.version += 1)));
    // A model of which next to nothing learns is refused as well.
    refused_at_assignment("model", |hub| {
        hub.world(|world| world.tweak = Some(|a| a.model.tensors[0].init = Initial::Uniform { bound: 0.0 }));
    });
    refused_at_assignment("model", |hub| hub.world(|world| world.tweak = Some(|a| a.model.seed += 1)));
    refused_at_assignment("model", |hub| {
        hub.world(|world| world.tweak = Some(|a| a.model.architecture = Some(serde_json::json!("another"))));
    });
    refused_at_assignment("model", |hub| hub.world(|world| world.tweak = Some(|a| a.task_name.push('2'))));
}

#[test]
fn a_bound_below_what_the_encoding_yields_is_refused() {
    let hub = Hub::new(3, 1);
    hub.world(|world| world.tweak_terms = Some(|terms| terms.input_bound -= 1));
    let mut devices = cohort(&hub);
    // The roster would differ from the terms as well; the assignment comes first.
    run_until(&mut devices, |device| device.events.iter().any(|event| matches!(event, Event::Abandoned { .. })));
    let told = |event: &Event| matches!(event, Event::TrainingFailed { error, .. } if error.contains("bound"));
    assert!(devices.iter().all(|device| device.events.iter().any(told)));
}

/// Another announcement, where it is of the right kind.
type Lie = fn(Announcement, &[u8]) -> Option<Vec<u8>>;

/// A lie to device 0 only: it leaves and is silent afterwards. The sum includes its input only if it was sent before.
fn lied_to(words: &str, included: bool, bend: Lie) {
    let hub = Hub::new(5, 1);
    hub.world(|world| {
        world.bend = Some(Arc::new(move |what, device, message| match device {
            0 => bend(what, &message).unwrap_or(message),
            _ => message,
        }));
    });
    let mut devices = cohort(&hub);
    finish(&hub, &mut devices);
    let told: Vec<String> = refusals(&devices[0]);
    assert!(told.len() == 1 && told[0].contains(words), "{words}: {told:?}");
    // The coordinator gets a code without words.
    assert_eq!(hub.world(|world| world.refused.clone()), [(0, RefusalCode::Protocol)], "{words}");
    assert_eq!(hub.world(|world| world.abandoned.clone()), [(0, 1, "refused")], "{words}");
    assert!(is_empty_of_secrets(&devices[0]));
    check_sums(&hub, words);
    let survivors = if included { vec![0, 1, 2, 3, 4] } else { vec![1, 2, 3, 4] };
    assert_eq!(published(&hub), [(1, survivors)], "{words}");
}

#[test]
fn a_roster_that_lies_is_refused() {
    fn bent(what: Announcement, message: &[u8], bend: fn(&mut Roster)) -> Option<Vec<u8>> {
        let mut roster = (what == Announcement::Roster).then(|| Roster::decode(message).unwrap())?;
        bend(&mut roster);
        Some(roster.encode())
    }
    lied_to("another model", false, |what, message| bent(what, message, |roster| roster.model_hash[0] ^= 1));
    lied_to("another round", false, |what, message| bent(what, message, |roster| roster.round.attempt += 1));
    lied_to("another configuration", false, |what, message| {
        bent(what, message, |roster| roster.config.max_corrupt = 1)
    });
    lied_to("t must be", false, |what, message| bent(what, message, |roster| roster.threshold -= 1));
    lied_to("own advertisement", false, |what, message| {
        bent(what, message, |roster| {
            let mut entries = roster.entries.as_slice().to_vec();
            entries[0].b_commit[0] ^= 1;
            roster.entries = entries.into();
        })
    });
    lied_to("certificate of entry 3", false, |what, message| {
        bent(what, message, |roster| {
            let mut entries = roster.entries.as_slice().to_vec();
            // Its key is in another's hand: the certificate of one, the id of another.
            entries[2].certificate = entries[3].certificate.clone();
            roster.entries = entries.into();
        })
    });
    lied_to("malformed", false, |what, _| (what == Announcement::Roster).then(|| b"garbage".to_vec()));
}

#[test]
fn later_announcements_that_lie_are_refused() {
    lied_to("dealers", false, |what, message| {
        let mut delivery = (what == Announcement::Delivery).then(|| Delivery::decode(message).unwrap())?;
        for gone in 3..=5 {
            delivery.dealers.remove(gone);
            delivery.incoming.remove(gone);
        }
        delivery.sealed = delivery.sealed.as_slice()[..1].to_vec().into();
        Some(delivery.encode())
    });
    lied_to("survivors", true, |what, message| {
        let mut survivors = (what == Announcement::Survivors).then(|| Survivors::decode(message).unwrap())?;
        for gone in 3..=5 {
            survivors.survivors.remove(gone);
        }
        Some(survivors.encode())
    });
    lied_to("signature", true, |what, message| {
        let mut agreement = (what == Announcement::Agreement).then(|| Agreement::decode(message).unwrap())?;
        let mut signatures = agreement.signatures.as_slice().to_vec();
        signatures[0].signature[0] ^= 1;
        agreement.signatures = signatures.into();
        Some(agreement.encode())
    });
    lied_to("signatures", true, |what, message| {
        let mut agreement = (what == Announcement::Agreement).then(|| Agreement::decode(message).unwrap())?;
        agreement.signatures = agreement.signatures.as_slice()[..2].to_vec().into();
        Some(agreement.encode())
    });
    // A ciphertext without a valid signature of its dealer: the device keeps its key.
    lied_to("delivered share", false, |what, message| {
        let mut delivery = (what == Announcement::Delivery).then(|| Delivery::decode(message).unwrap())?;
        let mut sealed = delivery.sealed.as_slice().to_vec();
        sealed[1][0] ^= 1;
        delivery.sealed = sealed.into();
        Some(delivery.encode())
    });
}

#[test]
fn whoever_is_left_out_of_the_sum_takes_it_for_over() {
    let hub = Hub::new(5, 1);
    hub.world(|world| {
        world.bend = Some(Arc::new(|what, device, message| {
            if (what, device) != (Announcement::Survivors, 0) {
                return message;
            }
            let mut survivors = Survivors::decode(&message).unwrap();
            survivors.survivors.remove(1);
            survivors.encode()
        }));
    });
    let mut devices = cohort(&hub);
    let is_over = |event: &Event| matches!(event, Event::RoundOver { .. });
    for _ in 0..200 {
        devices.iter_mut().for_each(|device| device.step(None));
        if devices[0].events.iter().any(is_over) {
            break;
        }
    }
    assert!(devices[0].events.iter().any(is_over) && refusals(&devices[0]).is_empty());
    hub.world(|world| {
        assert!(!world.calls.contains(&(0, "consistency")));
        world.give_up(0);
        world.settle();
    });
    finish(&hub, &mut devices);
    check_sums(&hub, "left out");
}

#[test]
fn a_dealer_that_deals_garbage_is_complained_about_whenever_the_device_dies() {
    let once = |kill: &dyn Fn(usize, usize) -> Option<Effect>| {
        let hub = Hub::new(4, 2);
        let mut devices = cohort(&hub);
        deal_garbage(&hub, &mut devices);
        for _ in 0..3000 {
            for device in &mut devices {
                if device.ended.is_none() {
                    let kill = kill(device.index, device.actions);
                    device.step(kill);
                }
            }
            if !hub.world(|world| world.complaints.is_empty()) {
                break;
            }
        }
        assert_eq!(hub.world(|world| world.complaints.clone()), [(0, 3)]);
        hub.world(|world| world.bend_dealt = None);
        finish(&hub, &mut devices);
        check_sums(&hub, "after a complaint");
        assert_eq!(published(&hub), [(2, vec![0, 1, 2, 3])]);
        let complained = |event: &Event| matches!(event, Event::Complained { place, .. } if place.round == 1);
        assert!(devices[0].events.iter().any(complained));
        assert!(!hub.world(|world| world.said.contains_key(&(1, 1, "input", 0))), "no input after a complaint");
        devices[0].actions
    };
    let actions = once(&|_, _| None);
    for at in (0..actions).step_by(3) {
        once(&|device, number| (device == 0 && number == at).then_some(EFFECTS[at % 3]));
    }
}

#[test]
fn a_masked_input_looks_like_nothing_and_differs_from_every_other() {
    let (hub, mut devices) = fresh(false);
    finish(&hub, &mut devices);
    hub.world(|world| {
        let inputs: Vec<&Vec<u8>> =
            world.said.iter().filter(|((_, _, what, _), _)| *what == "input").map(|(_, bytes)| bytes).collect();
        assert_eq!(inputs.len(), 6);
        for (device, input) in (0..3).cycle().zip(&inputs) {
            let plain = Exact::words(device, false);
            let plain: Vec<u8> = plain.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert!(plain.chunks(4).zip(input.chunks(4)).filter(|(plain, sent)| plain == sent).count() <= 1);
        }
    });
}
