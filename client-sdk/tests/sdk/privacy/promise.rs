//! Counted participations under distributed noise: the device's own ledger refuses another update, whatever a coordinator offers.

use client_sdk::{Event, PrivacySpent};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use wire::participant::PrivacyTerms;

use super::account::{DDG, epsilon, go_on, spent, world};
use crate::support::cohort::Hub;
use crate::support::device::{Device, published, refusals, run_until};
use crate::support::private::terms;

/// Ten rounds, of which a participant is in two.
fn counted(mechanism: &str, separation: Option<u32>) -> PrivacyTerms {
    let mut terms = terms(mechanism);
    (terms.rounds, terms.spec.participations, terms.spec.separation) = (10, Some(2), separation);
    terms
}

/// Offers an attempt and lets all devices go on for a while.
fn offer(hub: &Hub, devices: &mut [Device], round: u32, attempt: u32) {
    hub.world(|world| world.open(round, attempt));
    go_on(devices, 100);
}

#[test]
fn device_refuses_one_more_update_than_counted() {
    for mechanism in [DDG, "distributed_skellam"] {
        let terms = counted(mechanism, None);
        let (hub, mut devices) = world(&terms, 10);
        go_on(&mut devices, 200);
        let rounds = |hub: &Hub| published(hub).into_iter().map(|(round, _)| round).collect::<Vec<_>>();
        assert_eq!(rounds(&hub), [1, 2]);
        // A coordinator restored from a backup counts from zero again. So does a device that was killed, and its journal does not.
        for restarted in [false, true] {
            if restarted {
                devices.iter_mut().for_each(Device::restart);
            }
            (3..=5).for_each(|round| offer(&hub, &mut devices, round, 2));
            assert_eq!(rounds(&hub), [1, 2], "{mechanism}, restarted: {restarted}");
        }
        for device in &devices {
            let PrivacySpent { releases, most_releases, epsilon: own, server, .. } = spent(device);
            assert_eq!((releases, most_releases, server), (2, 2, Some(own)));
            assert!((own / epsilon(&terms, 2) - 1.0).abs() < 1e-9, "{own}: its ledger charges both in full");
            let refused = refusals(device);
            assert!(refused.iter().all(|reason| reason.contains("has sent 2 updates")), "{refused:?}");
        }
    }
}

#[test]
fn device_keeps_the_separation_of_counted_participations() {
    let (hub, mut devices) = world(&counted(DDG, Some(3)), 10);
    go_on(&mut devices, 100);
    (2..=8).for_each(|round| offer(&hub, &mut devices, round, 1));
    assert_eq!(published(&hub).into_iter().map(|(round, _)| round).collect::<Vec<_>>(), [1, 4]);
    let refused = refusals(&devices[0]);
    assert!(refused[0].contains("took part in round 1") && refused[0].contains("3 rounds apart"), "{refused:?}");
}

#[test]
fn first_promise_of_counted_participations_holds() {
    for (participations, says) in [(Some(9), "promised 2 participations at most"), (None, "has sent 2 updates")] {
        let (hub, mut devices) = world(&counted(DDG, None), 10);
        run_until(&mut devices, |device| device.events.iter().any(|event| matches!(event, Event::Unmasked { .. })));
        hub.world(|world| world.privacy.as_mut().unwrap().spec.participations = participations);
        (2..=6).for_each(|round| offer(&hub, &mut devices, round, 1));
        for device in &devices {
            assert!(spent(device).releases <= 2);
            let refused = refusals(device);
            assert!(refused.iter().any(|reason| reason.contains(says)), "{says}: {refused:?}");
        }
    }
}

/// Any schedule of offers, with rounds in any order and again, and devices killed in between.
#[test]
fn no_schedule_of_offers_gets_more_updates_than_counted() {
    for seed in 0..6 {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut below = |end: u32| rng.next_u32() % end;
        let separation = [None, Some(2)][below(2) as usize];
        let (hub, mut devices) = world(&counted(DDG, separation), 10);
        for attempt in 2..14 {
            offer(&hub, &mut devices, 1 + below(9), attempt);
            if below(3) == 0 {
                devices.iter_mut().for_each(Device::restart);
            }
        }
        for device in &devices {
            assert!(spent(device).releases <= 2, "{seed}");
            let sent = |said: &(u32, u32, &'static str, usize)| said.2 == "input" && said.3 == device.index;
            assert!(hub.world(|world| world.said.keys().filter(|said| sent(said)).count()) <= 2, "{seed}");
        }
    }
}
