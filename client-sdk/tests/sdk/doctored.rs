//! Attack by a coordinator: all but one participant train ahead of rounds from useless bytes, so the sum is the update of the
//! remaining one.

use client_sdk::participant::machine::Settings;
use client_sdk::{Event, SecurityPolicy};

use crate::support::assignments::{StatedDigest, TrainedAhead};
use crate::support::cohort::Hub;
use crate::support::device::{Device, check_sums, finish, published, run_until};
use crate::support::trainers::Exact;

const DEVICES: usize = 6;
const VICTIM: usize = 2;

/// A cohort with updates trained ahead from version `from`, for the round with base version 1.
fn trained_ahead(from: u32, served_doctored: fn(usize) -> bool, stated: StatedDigest) -> (Hub, Vec<Device>) {
    let hub = Hub::new(DEVICES, 2);
    hub.world(|world| {
        world.ahead = Some(TrainedAhead { from, max_staleness: 1, served_doctored, stated });
        world.open(2, 1);
    });
    let mut devices: Vec<_> = (0..DEVICES).map(|device| Device::new(device, &hub, allowing(1))).collect();
    finish(&hub, &mut devices);
    (hub, devices)
}

fn allowing(max_staleness: u32) -> Settings {
    Settings { security: SecurityPolicy { max_staleness, ..SecurityPolicy::lowest() }, ..crate::support::settings() }
}

/// The reason why a device refuses the round; `None` if it takes part.
fn declined(device: &Device) -> Option<String> {
    device.events.iter().find_map(|event| match event {
        Event::Refused { reason: told, .. } | Event::TrainingFailed { error: told, .. } => Some(told.clone()),
        _ => None,
    })
}

#[test]
fn members_that_trained_from_the_same_bytes_are_added_up() {
    for from in [0, 1] {
        let (hub, devices) = trained_ahead(from, |_| false, StatedDigest::Honest);
        for device in &devices {
            assert_eq!(declined(device), None, "from version {from}");
        }
        assert_eq!(published(&hub), [(2, (0..DEVICES).collect())], "from version {from}");
        check_sums(&hub, "trained ahead");
    }
}

#[test]
fn nobody_is_alone_in_having_learnt() {
    let all_but = |device| device != VICTIM;
    let lies = [
        (StatedDigest::Honest, 0, "other bytes of version 0", all_but as fn(usize) -> bool),
        (StatedDigest::Honest, 1, "other bytes of version 1", all_but),
        (StatedDigest::Doctored, 0, "other bytes of version 0", |device| device == VICTIM),
        (StatedDigest::Doctored, 1, "other bytes of version 1", |device| device == VICTIM),
        // The agreed terms of the session do not contain the forged version.
        (StatedDigest::EachItsOwn, 0, "has another encoding, model or training", all_but),
        (StatedDigest::EachItsOwn, 1, "another model", all_but),
        (StatedDigest::EachItsOwnTerms, 0, "another configuration", all_but),
        (StatedDigest::EachItsOwnTerms, 1, "another model", all_but),
    ];
    for (told, from, expected, declines) in lies {
        let what = format!("{told:?}, from version {from}");
        let (hub, devices) = trained_ahead(from, all_but, told);
        for device in &devices {
            let reason = declined(device);
            let is_told = reason.as_ref().is_some_and(|reason| reason.contains(expected));
            assert_eq!(is_told, declines(device.index), "{what}: device {}: {reason:?}", device.index);
        }
        let victims = Exact::words(VICTIM, false);
        hub.world(|world| {
            for opened in &world.published {
                let sum = &opened.sum;
                assert!(!opened.survivors.contains(&VICTIM), "{what}: the victim's update: {sum:?} of {victims:?}");
            }
        });
    }
}

/// Versions of different age are indistinguishable in a sum, even if all agree on their bytes.
#[test]
fn a_participant_trains_ahead_only_with_those_that_start_as_late_as_its_app_says() {
    for (max_staleness, limit) in [(0, 0), (1, 0), (1, 1), (2, 1)] {
        let what = format!("up to {max_staleness} behind, {limit} allowed");
        let hub = Hub::new(DEVICES, 2);
        hub.world(|world| {
            let (served_doctored, stated) = ((|_| false) as fn(usize) -> bool, StatedDigest::Honest);
            world.ahead = Some(TrainedAhead { from: 1, max_staleness, served_doctored, stated });
            world.open(2, 1);
        });
        let mut devices: Vec<_> = (0..DEVICES).map(|device| Device::new(device, &hub, allowing(limit))).collect();
        if max_staleness <= limit {
            finish(&hub, &mut devices);
            assert_eq!(published(&hub), [(2, (0..DEVICES).collect())], "{what}");
            continue;
        }
        for device in &mut devices {
            (0..100).for_each(|_| device.step(None));
            let reason = declined(device).unwrap_or_default();
            assert!(reason.contains("versions behind the round"), "{what}: {reason}");
            assert!(device.trainer.seen.lock().unwrap().is_empty(), "{what}: it trained");
        }
        assert!(published(&hub).is_empty(), "{what}");
    }
}

/// Trained when the app allowed it, which it does not any more.
#[test]
fn an_update_that_was_trained_ahead_is_given_to_no_round_that_the_app_would_decline() {
    let hub = Hub::new(DEVICES, 2);
    hub.world(|world| {
        let (served_doctored, stated) = ((|_| false) as fn(usize) -> bool, StatedDigest::Honest);
        world.ahead = Some(TrainedAhead { from: 0, max_staleness: 1, served_doctored, stated });
        world.open(2, 1);
    });
    let mut devices: Vec<_> = (0..DEVICES).map(|device| Device::new(device, &hub, allowing(1))).collect();
    let has_trained = |device: &Device| device.events.iter().any(|event| matches!(event, Event::Trained { .. }));
    run_until(&mut devices, has_trained);
    devices[VICTIM].settings = allowing(0);
    // What it has just trained is kept before it starts over.
    (0..2).for_each(|_| devices[VICTIM].step(None));
    devices[VICTIM].restart();
    finish(&hub, &mut devices);
    assert!(declined(&devices[VICTIM]).is_some_and(|reason| reason.contains("versions behind the round")));
    assert_eq!(published(&hub), [(2, (0..DEVICES).filter(|device| *device != VICTIM).collect())]);
    check_sums(&hub, "without the victim");
}

/// Every round on a version gets a newly trained update, also after a restart.
#[test]
fn one_version_is_trained_from_for_two_rounds() {
    let hub = Hub::new(DEVICES, 3);
    hub.world(|world| {
        let (served_doctored, stated) = ((|_| false) as fn(usize) -> bool, StatedDigest::Honest);
        world.ahead = Some(TrainedAhead { from: 1, max_staleness: 1, served_doctored, stated });
        world.open(2, 1);
    });
    let mut devices: Vec<_> = (0..DEVICES).map(|device| Device::new(device, &hub, allowing(1))).collect();
    while published(&hub).is_empty() {
        devices.iter_mut().for_each(|device| device.step(None));
    }
    assert_eq!(published(&hub), [(2, (0..DEVICES).collect())]);
    devices.iter_mut().for_each(Device::restart);
    finish(&hub, &mut devices);
    assert_eq!(published(&hub), [(2, (0..DEVICES).collect()), (3, (0..DEVICES).collect())]);
    for device in &devices {
        assert_eq!(device.trainer.seen.lock().unwrap().len(), 2, "{:?}", device.events);
    }
}
