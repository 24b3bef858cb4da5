//! Mistakes, planted one at a time: the simulator finds each, by the check that it breaks, and shows how in a few operations.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and tells the seed"
)]

use std::sync::{Mutex, PoisonError};

use coordinator::faults::{Fault, set};
use faults::{Check, Flaws, Profile, Runner, Schedule, SetupError, shrink};

/// One mistake per process at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Most seeds that finding a mistake may take.
const SEEDS: u64 = 1000;

/// Runs seeds of a profile from `first` on until something breaks; that must be one of `checks`. The schedule must be
/// shortened to at most `operations` that break it again, and that pass without the mistake.
fn found(fault: Option<Fault>, flaws: Flaws, (profile, first): (Profile, u64), checks: &[Check], operations: usize) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    set(fault);
    let mut runner = Runner::new(flaws).unwrap();
    let broken = (first..SEEDS).find_map(|seed| {
        let schedule = Schedule::draw(seed, Some(profile));
        let violation = runner.run(&schedule, None).unwrap().violation?;
        Some((schedule, violation))
    });
    let (schedule, violation) = broken.unwrap();
    println!("found under seed {}", schedule.seed);
    let short = shrink(&schedule, violation.check, 100, |candidate| {
        Ok::<_, SetupError>(runner.run(candidate, None)?.violation.map(|violation| violation.check))
    });
    let short = short.unwrap();
    let again = runner.run(&short, None).unwrap().violation;
    set(None);
    assert!(checks.contains(&violation.check), "{violation:?}");
    assert_eq!(again.map(|violation| violation.check), Some(violation.check));
    assert!(short.operations.len() <= operations, "{short:?}");
    let mut sound = Runner::new(Flaws::default()).unwrap();
    assert_eq!(sound.run(&short, None).unwrap().violation, None, "without the mistake: {short:?}");
}

#[test]
fn an_input_that_is_counted_twice() {
    found(Some(Fault::DoubleCount), Flaws::default(), (Profile::Calm, 0), &[Check::Sums], 0);
}

#[test]
fn a_snapshot_that_is_taken_for_the_newest() {
    let flaws = Flaws { copies_generation: true, ..Flaws::default() };
    found(None, flaws, (Profile::Greedy, 7), &[Check::Devices], 1);
}

#[test]
fn a_disk_that_is_not_flushed() {
    let flaws = Flaws { forgets_to_flush: true, ..Flaws::default() };
    found(None, flaws, (Profile::Crashy, 0), &[Check::Receipts, Check::Blobs], 2);
}

#[test]
fn a_wake_up_that_nobody_sends() {
    let flaws = Flaws { loses_wakes: true, ..Flaws::default() };
    found(None, flaws, (Profile::Calm, 0), &[Check::Wakes], 0);
}

#[test]
fn a_blob_whose_bytes_are_not_verified() {
    let flaws = Flaws { trusts_disks: true, ..Flaws::default() };
    found(None, flaws, (Profile::Greedy, 4), &[Check::Sums], 4);
}

#[test]
fn a_key_that_is_destroyed_without_the_lease() {
    found(Some(Fault::UnfencedWrite), Flaws::default(), (Profile::Calm, 0), &[Check::Receipts], 0);
}

#[test]
fn a_lease_that_was_lost_and_is_used() {
    found(Some(Fault::LostLease), Flaws::default(), (Profile::Skewed, 32), &[Check::Leases], 3);
}

#[test]
fn a_lease_that_is_judged_by_ones_own_clock() {
    found(Some(Fault::OwnClock), Flaws::default(), (Profile::Skewed, 166), &[Check::Leases], 5);
}

#[test]
fn a_round_that_is_published_twice() {
    found(Some(Fault::PublishTwice), Flaws::default(), (Profile::Skewed, 9), &[Check::Versions], 3);
}

#[test]
fn an_upload_that_is_replayed() {
    found(Some(Fault::ReplayedInput), Flaws::default(), (Profile::Lossy, 14), &[Check::Sums], 3);
}

#[test]
fn noise_that_is_drawn_once_for_all_rounds() {
    found(Some(Fault::ReusedNoise), Flaws::default(), (Profile::Calm, 5), &[Check::Sums], 0);
}

#[test]
fn a_charge_for_devices_that_are_not_in_the_sum() {
    found(Some(Fault::DropoutsCounted), Flaws::default(), (Profile::Lossy, 24), &[Check::Ledger], 4);
}
