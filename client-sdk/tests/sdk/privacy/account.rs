//! A participant's own ledger: charged before an update is kept, once an attempt, through every crash; and the refusals that
//! follow from it, independently of the coordinator.

use std::sync::Arc;

use client_sdk::journal::{Journal as _, JournalError, MemoryJournal};
use client_sdk::participant::snapshot;
use client_sdk::{
    BuildError, Event, Lifetime, Participant, ParticipantError, PrivacyPolicy, PrivacySpent, RefusalCode,
};
use task_spec::PrivacyMechanism;
use wire::participant::PrivacyTerms;

use crate::support::cohort::Hub;
use crate::support::device::{Device, EFFECTS, Effect, finish, published, refusals, run, run_until};
use crate::support::link::Link;
use crate::support::private::{derive, terms};
use crate::support::trainers::Nudge;
use crate::support::{Coordinator, in_the_clear, sha256, task};

pub(super) const DDG: &str = "distributed_discrete_gaussian";

/// Three devices and a task of so many rounds.
pub(super) fn world(terms: &PrivacyTerms, rounds: u32) -> (Hub, Vec<Device>) {
    let hub = Hub::new(3, rounds);
    hub.world(|world| {
        world.privacy = Some(terms.clone());
        world.open(1, 1);
    });
    let devices = (0..3).map(|index| Device::new(index, &hub, crate::support::settings())).collect();
    (hub, devices)
}

pub(super) fn spent(device: &Device) -> PrivacySpent {
    let spent = device.machine.privacy_spent();
    assert_eq!(spent.len(), 1);
    spent[0].clone()
}

/// Epsilon of this number of releases towards observers who know the members, computed by the coordinator's accounting.
pub(super) fn epsilon(terms: &PrivacyTerms, releases: u64) -> f64 {
    let (request, codec) = derive(terms, 5);
    let cost = request.release(&codec).unwrap().without_sampling().cost(Default::default());
    cost.times(releases).at(1e-5, None, Default::default()).cohort_known
}

/// All continue for a while, not to the end of the task.
pub(super) fn go_on(devices: &mut [Device], steps: usize) {
    for _ in 0..steps {
        devices.iter_mut().filter(|device| device.ended.is_none()).for_each(|device| device.step(None));
    }
}

#[test]
fn what_is_spent_can_be_read_before_and_after_a_restart() {
    for mechanism in ["central_gaussian", DDG, "distributed_skellam", "local"] {
        let terms = terms(mechanism);
        let (hub, mut devices) = world(&terms, 2);
        assert!(devices[0].machine.privacy_spent().is_empty());
        finish(&hub, &mut devices);
        assert_eq!(published(&hub).len(), 2);
        for device in &mut devices {
            let before = spent(device);
            assert_eq!(
                (before.task, before.name.as_str(), before.releases, before.most_releases),
                (task(), "task", 2, 2)
            );
            assert_eq!((before.mechanism.as_str(), before.delta, before.limit), (mechanism, 1e-5, None));
            assert!((before.epsilon / epsilon(&terms, 2) - 1.0).abs() < 1e-9, "{before:?}");
            let server = (mechanism != "central_gaussian").then_some(before.epsilon);
            assert_eq!((before.server, before.damaged.clone()), (server, None));
            device.restart();
            assert_eq!(spent(device), before);
        }
    }
}

#[test]
fn a_charge_is_kept_before_its_update_is() {
    let (hub, mut devices) = world(&terms(DDG), 2);
    finish(&hub, &mut devices);
    let uploads = devices[0].log.iter().enumerate().filter(|(_, what)| **what == "upload");
    let before: Vec<_> = uploads.map(|(at, _)| &devices[0].log[at - 2..at]).collect();
    assert_eq!(before, [["charged", "round"], ["charged", "round"]]);
}

#[test]
fn killed_around_every_charge_each_round_is_charged_once_and_says_one_thing() {
    let mut terms = terms("distributed_skellam");
    // Less to account for.
    terms.spec.noise_multiplier = Some(30.0);
    let (hub, mut devices) = world(&terms, 2);
    let mut charged = vec![];
    for _ in 0..200 {
        let before = devices[0].log.len();
        devices.iter_mut().filter(|device| device.ended.is_none()).for_each(|device| device.step(None));
        if devices[0].log[before..].contains(&"charged") {
            charged.push(devices[0].actions - 1);
        }
    }
    assert_eq!((charged.len(), published(&hub).len()), (2, 2));
    // Everything around the charges, and some of the rest.
    let is_near = |at: usize| charged.iter().any(|charged| at.abs_diff(*charged) <= 2);
    for at in (0..devices[0].actions).filter(|at| is_near(*at) || at.is_multiple_of(11)) {
        for effect in EFFECTS {
            let (hub, mut devices) = world(&terms, 2);
            // The run also checks that repeated messages are identical.
            run(&mut devices, |device, number| (device == 0 && number == at).then_some(effect));
            let what = format!("killed at {at}, effect {effect:?}");
            assert_eq!(published(&hub), [(1, vec![0, 1, 2]), (2, vec![0, 1, 2])], "{what}");
            assert_eq!(spent(&devices[0]).releases, 2, "{what}");
            assert!(refusals(&devices[0]).is_empty(), "{what}: {:?}", refusals(&devices[0]));
        }
    }
}

/// In the clear, where the coordinator states the terms again after a restart.
fn alone(coordinator: &Coordinator) -> Device<Coordinator, Nudge> {
    coordinator.world(|world| world.privacy = Some(terms("central_gaussian")));
    Device::with(Arc::new(MemoryJournal::new()), 0, coordinator.clone(), Nudge::default(), in_the_clear())
}

#[test]
fn crashed_charge_rejects_another_release() {
    type Change = fn(&mut PrivacyTerms);
    let mut undisturbed = alone(&Coordinator::new(1));
    while undisturbed.log.last() != Some(&"round") || !undisturbed.log.contains(&"charged") {
        undisturbed.step(None);
    }
    let at_charge = undisturbed.actions - 1;
    let changes: [(Change, bool); 3] = [
        (|_| (), false),
        (|terms| terms.spec.noise_multiplier = Some(2.0), true),
        (|terms| terms.smallest_cohort = 2, true),
    ];
    for (change, is_other) in changes {
        let coordinator = Coordinator::new(1);
        let mut device = alone(&coordinator);
        for action in 0..=at_charge {
            // The charge is written, and the update is not.
            device.step((action == at_charge).then_some(Effect::Partial));
        }
        assert_eq!(device.machine.privacy_spent()[0].releases, 1);
        coordinator.world(|world| change(world.privacy.as_mut().unwrap()));
        for _ in 0..100 {
            if device.ended.is_none() {
                device.step(None);
            }
        }
        let refused: Vec<_> = device
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Refused { reason, .. } => Some(reason.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(refused.iter().any(|reason| reason.contains("which was not charged")), is_other, "{refused:?}");
        assert_eq!(coordinator.world(|world| world.accepted.len()), usize::from(!is_other));
        assert_eq!(device.machine.privacy_spent()[0].releases, 1, "charged once in any case");
    }
}

/// The figures that operators get before a task starts match the behaviour of devices.
#[test]
fn default_lifetime_allows_as_many_participations_as_planned() {
    let Lifetime { epsilon: most, delta } = Lifetime::default();
    for (mechanism, noise, separation) in [
        ("central_gaussian", 2.0, None),
        ("central_gaussian", 1.415, None),
        ("banded_matrix", 1.2, Some(2)),
        ("tree", 2.0, None),
    ] {
        let mut terms = terms(mechanism);
        (terms.rounds, terms.spec.noise_multiplier, terms.spec.separation) = (40, Some(noise), separation);
        let (request, _) = derive(&terms, 5);
        let planned = request.participations_within(noise, most, delta).unwrap();
        let coordinator = Coordinator::new(40);
        let device = Plain::new(&coordinator, terms, PrivacyPolicy::default());
        device.run();
        assert_eq!(coordinator.world(|world| world.accepted.len()), planned as usize, "{mechanism} {noise}");
        assert!((1..20).contains(&planned), "{mechanism} {noise}: {planned}");
    }
}

#[test]
fn a_retried_attempt_is_charged_again() {
    // A round without secure aggregation fails after all have trained. With masks, a second input stays on the device.
    let mut two = terms("central_gaussian");
    two.rounds = 3;
    let coordinator = Coordinator::new(1);
    let device = Plain::new(&coordinator, two, PrivacyPolicy::default());
    coordinator.world(|world| world.rounds_done = 0);
    device.run();
    assert_eq!(device.spent()[0].releases, 1);
    coordinator.world(|world| {
        (world.rounds_done, world.attempt) = (0, 2);
        world.accepted.clear();
    });
    device.run();
    assert_eq!(device.spent()[0].releases, 2, "the second attempt");
    // The coordinator offers the first round again as if new: the participant does not send an update for a used
    // charge.
    for attempt in [1, 2] {
        coordinator.world(|world| {
            (world.rounds_done, world.attempt) = (0, attempt);
            world.accepted.clear();
        });
        let refused = device.run();
        if attempt == 1 {
            assert!(refused[0].contains("was charged and sent before"), "{refused:?}");
        }
        coordinator.world(|world| assert!(world.accepted.is_empty()));
        assert_eq!(device.spent()[0].releases, 2);
    }
}

#[test]
fn no_more_rounds_than_were_planned() {
    let (hub, mut devices) = world(&terms(DDG), 3);
    go_on(&mut devices, 200);
    assert_eq!(published(&hub).len(), 2, "two are planned");
    for device in &devices {
        assert_eq!(spent(device).releases, 2);
        let refused = refusals(device);
        assert!(refused.iter().all(|reason| reason.contains("has sent 2 updates")), "{refused:?}");
        assert_eq!(refused.len(), 1, "told once");
    }
    let invited = |device: &Device| device.events.iter().filter(|event| matches!(event, Event::Invited { .. })).count();
    assert_eq!(invited(&devices[0]), 2, "no keys are made for what will not be sent");
}

#[test]
fn no_further_than_the_budget_that_is_meant_for_participants() {
    for (against, is_ours) in [("published", false), ("cohort_known", true), ("server", true)] {
        let mut terms = terms(DDG);
        terms.rounds = 5;
        terms.spec.epsilon = Some(1.01 * epsilon(&terms, 2));
        terms.spec.against = serde_json::from_str(&format!("{against:?}")).unwrap();
        let (hub, mut devices) = world(&terms, 4);
        go_on(&mut devices, 400);
        assert_eq!(published(&hub).len(), if is_ours { 2 } else { 4 }, "{against}");
        let device = &devices[0];
        assert_eq!(spent(device).limit, terms.spec.epsilon.filter(|_| is_ours));
        if is_ours {
            let refused = refusals(device);
            assert!(refused[0].contains("budget for the task is used up"), "{refused:?}");
            assert!(spent(device).epsilon <= terms.spec.epsilon.unwrap());
        }
    }
}

#[test]
fn an_app_has_limits_of_its_own() {
    let terms = terms("central_gaussian");
    let limited = |policy: PrivacyPolicy, terms: Option<&PrivacyTerms>| {
        let coordinator = Coordinator::new(2);
        let device = Plain::with(&coordinator, terms.cloned(), policy);
        (device.run(), coordinator.world(|world| world.accepted.len()))
    };
    assert_eq!(limited(PrivacyPolicy::default(), Some(&terms)), (vec![], 2));
    assert_eq!(limited(PrivacyPolicy::default(), None), (vec![], 2));
    let (refused, sent) = limited(PrivacyPolicy { required: true, ..Default::default() }, None);
    assert!(refused[0].contains("no privacy mechanism") && sent == 0, "{refused:?}");
    let (refused, sent) = limited(PrivacyPolicy { max_delta: Some(1e-6), ..Default::default() }, Some(&terms));
    assert!(refused[0].contains("delta is 1e-5") && sent == 0, "{refused:?}");
    let once = PrivacyPolicy { max_epsilon: Some(1.01 * epsilon(&terms, 1)), ..Default::default() };
    let (refused, sent) = limited(once, Some(&terms));
    assert!(refused[0].contains("is used up") && sent == 1, "{refused:?}");
    let never = PrivacyPolicy { max_epsilon: Some(0.99 * epsilon(&terms, 1)), ..Default::default() };
    let (refused, sent) = limited(never, Some(&terms));
    assert!(refused[0].contains("is used up") && sent == 0, "{refused:?}");
    let mut loud = terms.clone();
    loud.spec.noise_multiplier = Some(0.3);
    let (refused, sent) = limited(PrivacyPolicy::default(), Some(&loud));
    assert!(refused[0].contains("at most 10 in its life") && sent == 0, "{refused:?}");
    let unlimited = PrivacyPolicy { lifetime: None, ..PrivacyPolicy::default() };
    assert_eq!(limited(unlimited, Some(&loud)), (vec![], 2));
    for policy in [
        PrivacyPolicy { max_epsilon: Some(0.0), ..Default::default() },
        PrivacyPolicy { max_epsilon: Some(f64::NAN), ..Default::default() },
        PrivacyPolicy { max_delta: Some(1.0), ..Default::default() },
        PrivacyPolicy { lifetime: Some(Lifetime { epsilon: f64::INFINITY, delta: 1e-5 }), ..Default::default() },
        PrivacyPolicy { lifetime: Some(Lifetime { epsilon: 1.0, delta: 0.0 }), ..Default::default() },
    ] {
        let built = Participant::builder().privacy(policy).build().map(|_| ());
        assert!(matches!(built, Err(BuildError::BadPrivacyPolicy)));
    }
}

/// As another task, of the same coordinator.
fn of_task<const N: u8>(assignment: &mut wire::participant::Assignment) {
    assignment.task = format!("00000000-0000-0000-0000-0000000002{N:02}").parse().unwrap();
}

#[test]
fn all_tasks_together_stop_at_the_limit_of_a_life() {
    let terms = terms("central_gaussian");
    let lifetime = Lifetime { epsilon: 1.01 * epsilon(&terms, 3), delta: 1e-5 };
    let policy = PrivacyPolicy { lifetime: Some(lifetime), ..PrivacyPolicy::default() };
    let mut device = Plain::new(&Coordinator::new(1), terms.clone(), policy);
    let mut sent = vec![];
    let in_task = |device: &mut Plain, task: fn(&mut wire::participant::Assignment)| {
        device.coordinator = Coordinator::new(1);
        device.coordinator.world(|world| (world.privacy, world.tweak) = (Some(terms.clone()), Some(task)));
    };
    let tasks: [fn(&mut _); 5] = [of_task::<1>, of_task::<2>, of_task::<3>, of_task::<4>, of_task::<5>];
    for task in tasks {
        in_task(&mut device, task);
        let refused = device.run();
        sent.push(device.coordinator.world(|world| world.accepted.len()));
        assert_eq!(refused.iter().any(|reason| reason.contains("in its life")), sent.len() > 3, "{refused:?}");
    }
    assert_eq!(sent, [1, 1, 1, 0, 0]);
    let spent = device.build(|_| ()).privacy_lifetime();
    assert!((spent.epsilon.unwrap() / epsilon(&terms, 3) - 1.0).abs() < 1e-9, "{spent:?}");
    assert_eq!((spent.delta, spent.limit), (1e-5, Some(lifetime.epsilon)));
    // Without a limit each task has its own, as before.
    device.policy.lifetime = None;
    in_task(&mut device, of_task::<6>);
    assert_eq!((device.run(), device.coordinator.world(|world| world.accepted.len())), (vec![], 1));
}

#[test]
fn what_was_promised_first_holds() {
    type Change = fn(&mut PrivacyTerms);
    let changes: [(Change, &str); 5] = [
        (|terms| terms.spec.noise_multiplier = Some(0.99), "noise multiplier of 1 first"),
        (|terms| terms.spec.delta = Some(1e-4), "which is more"),
        (|terms| terms.spec.mechanism = crate::support::private::terms("local").spec.mechanism, "now says local"),
        (|terms| terms.rounds = 1000, "has sent 2 updates"),
        (|terms| terms.spec.noise_multiplier = Some(2.0), ""),
    ];
    for (change, expected) in changes {
        for restarted in [false, true] {
            let (hub, mut devices) = world(&terms(DDG), 3);
            run_until(&mut devices, |device| device.events.iter().any(|event| matches!(event, Event::Unmasked { .. })));
            let late = expected.contains("has sent");
            if late {
                go_on(&mut devices, 60);
            }
            let round = hub.world(|world| {
                change(world.privacy.as_mut().unwrap());
                world.open(world.round.max(2), 7);
                world.round
            });
            if restarted {
                devices.iter_mut().for_each(Device::restart);
            }
            go_on(&mut devices, 100);
            let refused = refusals(&devices[0]);
            if expected.is_empty() {
                assert!(published(&hub).iter().any(|(done, _)| *done == round), "more noise is welcome: {refused:?}");
            } else {
                assert!(refused.iter().any(|reason| reason.contains(expected)), "{expected}: {refused:?}");
                assert!(published(&hub).iter().all(|(done, _)| *done < round), "{expected}");
            }
        }
    }
    // A promise cannot be withdrawn either.
    let coordinator = Coordinator::new(2);
    let device = Plain::new(&coordinator, terms("central_gaussian"), PrivacyPolicy::default());
    coordinator.world(|world| world.rounds = 1);
    assert!(device.run().is_empty());
    coordinator.world(|world| (world.rounds, world.privacy) = (2, None));
    let refused = device.run();
    assert!(refused[0].contains("promised central_gaussian") && refused[0].contains("now says none"), "{refused:?}");
}

#[test]
fn a_tree_is_entered_once_and_charged_for_all_its_levels() {
    let mut terms = terms("tree");
    terms.rounds = 10;
    let (hub, mut devices) = world(&terms, 3);
    go_on(&mut devices, 200);
    assert_eq!(published(&hub).len(), 1);
    let (of, refused) = (spent(&devices[0]), refusals(&devices[0]));
    assert!(refused[0].contains("in the task's tree before"), "{refused:?}");
    assert_eq!((of.mechanism, of.releases, of.most_releases), (PrivacyMechanism::Tree, 1, 1));
    // Ten rounds have four levels, each a Gaussian release.
    let levels = epsilon(&terms, 4);
    assert!((of.epsilon / levels - 1.0).abs() < 1e-6, "{} instead of {levels}", of.epsilon);
}

#[test]
fn a_banded_matrix_is_entered_so_often_and_so_far_apart_and_charged_by_its_columns() {
    let mut terms = terms("banded_matrix");
    terms.rounds = 10;
    (terms.spec.participations, terms.spec.separation) = (Some(2), Some(3));
    let coordinator = Coordinator::new(9);
    let policy = PrivacyPolicy { lifetime: None, ..PrivacyPolicy::default() };
    let device = Plain::new(&coordinator, terms.clone(), policy);
    // The coordinator breaks the terms of its own task: it offers every round.
    let refused = device.run();
    assert_eq!(coordinator.world(|world| world.accepted.keys().copied().collect::<Vec<_>>()), [1, 4]);
    assert_eq!(refused.len(), 7, "{refused:?}");
    assert!(refused[0].contains("took part in round 1") && refused[0].contains("3 rounds apart"), "{refused:?}");
    assert!(refused[1].contains("this is round 3"), "{refused:?}");
    assert!(refused[2..].iter().all(|reason| reason.contains("has sent 2 updates")), "{refused:?}");
    // Only what further rounds cannot change is a refusal of the task.
    let refusals = device.build(|_| ()).refusals();
    let codes: Vec<_> = refusals.iter().map(|refusal| (refusal.code, refusal.times)).collect();
    let (too_soon, for_good) = (Some(RefusalCode::Given), Some(RefusalCode::Privacy));
    assert_eq!(codes, [(too_soon, 1), (too_soon, 1), (for_good, 5)], "{refusals:?}");
    let of = device.spent().remove(0);
    assert_eq!((of.mechanism, of.releases, of.most_releases), (PrivacyMechanism::BandedMatrix, 2, 2));
    // Twice the column 1, 1/2, 3/8 at a noise multiplier of 1, continuous noise; what was drawn is a little wider.
    let z = 1.0 / f64::sqrt(2.0 * 1.390_625);
    let exact = client_sdk::learning::privacy::accountant::Gaussians::new(1.0, z, 1).epsilon(1e-5).unwrap();
    assert!((of.epsilon / exact - 1.0).abs() < 1e-3, "{} instead of {exact}", of.epsilon);
    // A second attempt at a round has the least separation: its column would overlap with that of the first. If columns never overlap,
    // the attempt is another participation.
    for (separation, sends) in [(3, 1), (1, 2)] {
        let coordinator = Coordinator::new(1);
        let mut terms = terms.clone();
        terms.spec.separation = Some(separation);
        let device = Plain::new(&coordinator, terms, policy);
        for attempt in [1, 2, 3] {
            coordinator.world(|world| {
                (world.rounds_done, world.attempt) = (0, attempt);
                world.accepted.clear();
            });
            let refused = device.run();
            assert_eq!(refused.is_empty(), attempt <= sends, "{refused:?}");
            let why = if separation == 3 { "took part in round 1" } else { "has sent 2 updates" };
            assert!(refused.iter().all(|reason| reason.contains(why)), "{refused:?}");
        }
        assert_eq!(device.spent()[0].releases, u64::from(sends));
    }
    // The participations cannot be added up for a matrix other than the promised one.
    for (participations, separation) in [(Some(3), Some(3)), (Some(2), Some(2))] {
        let coordinator = Coordinator::new(1);
        let device = Plain::new(&coordinator, terms.clone(), policy);
        assert!(device.run().is_empty());
        coordinator.world(|world| {
            (world.rounds_done, world.rounds) = (4, 5);
            let spec = &mut world.privacy.as_mut().unwrap().spec;
            (spec.participations, spec.separation) = (participations, separation);
        });
        let refused = device.run();
        assert!(refused[0].contains("promised 2 participations at most, 3 rounds apart"), "{refused:?}");
    }
}

#[test]
fn an_edited_ledger_is_found_and_nothing_more_is_sent_to_that_task() {
    let (hub, mut devices) = world(&terms(DDG), 3);
    run_until(&mut devices, |device| device.events.iter().any(|event| matches!(event, Event::Unmasked { .. })));
    let before = spent(&devices[0]);
    // An attacker who knows the format lowers the cost, and updates the digest.
    for (from, to) in [("\"participants\":3", "\"participants\":9"), ("\"rounds\":2", "\"rounds\":9")] {
        devices[0].rewrite(snapshot::PRIVACY, |record| {
            let at = record.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
            record[at..at + to.len()].copy_from_slice(to.as_bytes());
            let content = record.len() - 32;
            let digest = sha256(&record[..content]).0;
            record[content..].copy_from_slice(&digest);
        });
    }
    devices[0].restart();
    let found = spent(&devices[0]);
    assert!(found.damaged.as_ref().unwrap().contains("not what was written"), "{found:?}");
    assert_eq!(found.releases, before.releases, "nothing is forgotten");
    hub.world(|world| world.open(3, 1));
    go_on(&mut devices, 100);
    let refused = refusals(&devices[0]);
    assert!(refused.iter().any(|reason| reason.contains("cannot be trusted")), "{refused:?}");
    hub.world(|world| assert!(!world.said.contains_key(&(3, 1, "input", 0))));
}

#[test]
fn a_damaged_missing_or_older_ledger_is_a_clear_error() {
    let (hub, mut devices) = world(&terms(DDG), 2);
    run_until(&mut devices, |device| device.events.iter().any(|event| matches!(event, Event::Unmasked { .. })));
    let first = devices[0].journal.load(snapshot::PRIVACY).unwrap().unwrap();
    finish(&hub, &mut devices);
    let device = &devices[0];
    let whole = device.journal.load(snapshot::PRIVACY).unwrap().unwrap();
    assert!(device.with_record(snapshot::PRIVACY, &whole).is_ok());
    for length in (0..whole.len()).step_by(31) {
        assert!(device.with_record(snapshot::PRIVACY, &whole[..length]).is_err(), "cut at {length}");
    }
    for position in (0..whole.len()).step_by(31) {
        let mut damaged = whole.to_vec();
        damaged[position] ^= 1;
        assert!(device.with_record(snapshot::PRIVACY, &damaged).is_err(), "bit flipped at {position}");
    }
    let error = device.with_record(snapshot::PRIVACY, &first).unwrap_err();
    assert!(
        matches!(&error, ParticipantError::Journal(JournalError::RolledBack { held: 1, charged: 2, .. })),
        "{error}"
    );
    // Gone altogether.
    let journal = MemoryJournal::new();
    for name in [snapshot::IDENTITY, snapshot::ROUND] {
        journal.save(name, &device.journal.load(name).unwrap().unwrap()).unwrap();
    }
    let builder = Participant::builder()
        .members_ca_pem(crate::support::ca_pem())
        .transport(Link::to(Coordinator::new(1)))
        .journal(journal)
        .trainer(Nudge::default());
    let error = builder.build().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("holds 0 releases where 2 were charged"), "{error}");
}

#[test]
fn noise_and_rounding_do_not_follow_from_a_seed() {
    // All are built with the same seed, name and data.
    let of = |mechanism| {
        let coordinator = Coordinator::new(1);
        let device = Plain::new(&coordinator, terms(mechanism), PrivacyPolicy::default());
        assert!(device.run().is_empty());
        coordinator.world(|world| world.accepted[&1].clone())
    };
    assert_ne!(of("local"), of("local"));
    // Where the coordinator adds the noise only five roundings are drawn, and may happen to be the same.
    let first = of("central_gaussian");
    assert!((0..30).any(|_| of("central_gaussian") != first));
}

#[test]
fn neither_metrics_nor_weights_are_in_what_is_sent() {
    let coordinator = Coordinator::new(1);
    Plain::new(&coordinator, terms("central_gaussian"), PrivacyPolicy::default()).run();
    // Five words of 32 bits, one for each parameter.
    coordinator.world(|world| assert_eq!(world.accepted[&1].len(), 5 * 4));
}

#[test]
fn noise_differs_between_participants_and_rounds() {
    let (hub, mut devices) = world(&terms("local"), 2);
    finish(&hub, &mut devices);
    let sums = hub.world(|world| world.published.iter().map(|done| done.sum.clone()).collect::<Vec<_>>());
    assert_ne!(sums[0], sums[1], "the updates were the same");
}

/// A participant as an app builds it, of a coordinator without secure aggregation, on one journal.
struct Plain {
    coordinator: Coordinator,
    journal: std::sync::Arc<MemoryJournal>,
    policy: PrivacyPolicy,
}

impl Plain {
    fn new(coordinator: &Coordinator, terms: PrivacyTerms, policy: PrivacyPolicy) -> Self {
        Self::with(coordinator, Some(terms), policy)
    }

    fn with(coordinator: &Coordinator, terms: Option<PrivacyTerms>, policy: PrivacyPolicy) -> Self {
        coordinator.world(|world| world.privacy = terms);
        Self { coordinator: coordinator.clone(), journal: Default::default(), policy }
    }

    fn build(&self, observer: impl Fn(&Event) + Send + Sync + 'static) -> Participant {
        self.coordinator
            .app()
            .privacy(self.policy)
            .enrollment_token("token")
            .journal(std::sync::Arc::clone(&self.journal))
            .trainer(Nudge::default())
            .seed(Some(7))
            .on_event(observer)
            .build()
            .unwrap()
    }

    /// Runs to the end of the task, or until messages stop. Returns the reasons for refusals.
    fn run(&self) -> Vec<String> {
        let refused = std::sync::Arc::new(std::sync::Mutex::new(vec![]));
        let told = std::sync::Arc::clone(&refused);
        let mut participant = self.build(move |event| match event {
            Event::Refused { reason, .. } => told.lock().unwrap().push(reason.clone()),
            Event::TrainingFailed { error, .. } => told.lock().unwrap().push(error.clone()),
            _ => {}
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let patience = std::time::Duration::from_secs(60);
        runtime.block_on(async { participant.run(tokio::time::sleep(patience)).await }).unwrap();
        drop(participant);
        std::sync::Arc::try_unwrap(refused).unwrap().into_inner().unwrap()
    }

    fn spent(&self) -> Vec<PrivacySpent> {
        self.build(|_| ()).privacy_spent()
    }
}
