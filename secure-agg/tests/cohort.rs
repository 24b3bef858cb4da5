//! Whole cohorts: with any dropouts, repetitions, reordering or restarts, the session ends with exactly the sum of its survivors' inputs or
//! with a named abort.

use crate::support::{Course, DropsAt, Seen, cohort, config, plain_sum, run};
use proptest::prelude::*;
use secure_agg::params::{SessionConfig, VectorShape};
use secure_agg::rejection::{Abort, PhaseName};

/// Runs one course and compares its end with the counts of each phase.
fn check(config: &SessionConfig, course: &Course, seed: u64) {
    let n = u16::try_from(course.drops.len()).unwrap();
    let (mut world, mut members) = cohort(n, config.clone(), seed);
    let mut seen = Seen::default();
    let ended = run(&mut world, &mut members, course, &mut seen);

    let count = |at: DropsAt| u16::try_from(course.drops.iter().filter(|drops| **drops > at).count()).unwrap();
    let expected = expected_abort(config, [count(0), count(1), count(2), count(3), count(4)]);
    match (&ended, expected) {
        (Ok((unmasked, sums)), None) => {
            let in_sum: Vec<u16> = (1..=n).filter(|i| course.drops[usize::from(*i) - 1] > 2).collect();
            assert_eq!(usize::from(unmasked.survivors().len()), in_sum.len());
            assert_eq!(*sums, plain_sum(config, &members, in_sum.into_iter()), "{:?}", course.drops);
            assert!(unmasked.faults().is_empty());
        }
        (Err(abort), Some(expected)) => assert_eq!(*abort, expected, "{:?}", course.drops),
        (Ok(_), Some(expected)) => panic!("{:?} must end with {expected}", course.drops),
        (Err(abort), None) => panic!("{:?} must not end with {abort}", course.drops),
    }
    check_secrecy(&seen, &course.drops);
}

/// The abort for these counts, if any.
fn expected_abort(config: &SessionConfig, counts: [u16; 5]) -> Option<Abort> {
    let phases = [PhaseName::Advertise, PhaseName::Share, PhaseName::Mask, PhaseName::Consistency, PhaseName::Unmask];
    let short = |needed: u16, phase: usize| {
        (counts[phase] < needed).then_some(Abort::TooFew { phase: phases[phase], needed, got: counts[phase] })
    };
    short(config.min_cohort, 0).or_else(|| {
        let params = config.params(counts[0]).unwrap();
        (1..5).find_map(|phase| short(if phase == 2 { params.min_survivors() } else { params.threshold() }, phase))
    })
}

/// From all revealed shares, even with those of the maximum number of tolerated colluders, the coordinator never has t shares of both seeds
/// of one participant.
fn check_secrecy(seen: &Seen, drops: &[DropsAt]) {
    let (Some(dealers), Some(survivors)) = (&seen.dealers, &seen.survivors) else { return };
    for (column, dealer) in dealers.iter().enumerate() {
        let mut revealed = [0u16; 2];
        for answer in &seen.answers {
            let share = answer.body.shares.as_slice()[column];
            let held = seen.held[&answer.body.sender][column];
            let kind = held.iter().position(|one| *one == share).unwrap();
            assert_eq!(kind, usize::from(survivors.contains(dealer)), "{drops:?}: the wrong kind was revealed");
            revealed[kind] += 1;
        }
        // Colluders hold both kinds, regardless of their answers.
        let could_open = revealed.map(|count| count + seen.corrupt >= seen.threshold);
        assert_ne!(could_open, [true, true], "{drops:?}: both seeds of {dealer} could be opened");
    }
}

/// Every multiset of `len` drop phases, as ascending lists.
fn multisets(len: usize) -> Vec<Vec<DropsAt>> {
    let mut all = vec![Vec::new()];
    for _ in 0..len {
        all = all
            .into_iter()
            .flat_map(|prefix: Vec<DropsAt>| {
                let from = prefix.last().copied().unwrap_or(0);
                (from..=5).map(move |next| prefix.iter().copied().chain([next]).collect())
            })
            .collect();
    }
    all
}

#[test]
fn every_multiset_of_drops_in_small_cohorts_ends_exactly_or_not_at_all() {
    for n in 3..=6u16 {
        for (seed, mut drops) in (0u64..).zip(multisets(n.into())) {
            // Positions must not matter: rotate the ascending list.
            drops.rotate_left(usize::try_from(seed).unwrap() % usize::from(n));
            let course = Course { drops, restarts: seed % 2 == 0, replays: seed % 3 == 0, shuffles: false };
            check(&config(n, 3), &course, seed);
        }
    }
}

#[test]
#[ignore = "every assignment, not only every multiset: `just soak`"]
fn every_assignment_of_drops_in_cohorts_of_up_to_six_ends_exactly_or_not_at_all() {
    for n in 3..=6u32 {
        for number in 0..6u64.pow(n) {
            let drops = (0..n).map(|digit| u8::try_from(number / 6u64.pow(digit) % 6).unwrap()).collect();
            let course = Course { drops, restarts: number % 2 == 0, replays: false, shuffles: false };
            check(&config(u16::try_from(n).unwrap(), 1), &course, number);
        }
    }
}

fn courses() -> impl Strategy<Value = (Course, SessionConfig, u64)> {
    // Participants mostly stay, and sometimes leave at any phase.
    let drops = proptest::collection::vec(prop_oneof![6 => Just(5u8), 1 => 0u8..5], 3..14);
    let shape = (1u64..40, 16u8..=32);
    (drops, any::<[bool; 3]>(), shape, 0u32..=330_000, any::<u64>()).prop_map(
        |(drops, [restarts, replays, shuffles], (words, bits), max_corrupt, seed)| {
            let n = u16::try_from(drops.len()).unwrap();
            let bound = (1u64 << (bits - 1)) / u64::from(n) - 1;
            let model = VectorShape { words, modulus_bits: bits, input_bound: bound, noise_margin: 0 };
            let config = SessionConfig { model, max_corrupt, ..config(n, words) };
            (Course { drops, restarts, replays, shuffles }, config, seed)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn the_sum_over_the_survivors_is_exact((course, config, seed) in courses()) {
        check(&config, &course, seed);
    }
}

#[test]
fn a_cohort_with_a_sparse_mask_graph_sums_exactly_under_dropouts() {
    // 130 participants draw k_m = 28 neighbours each; a tenth of them leaves after dealing.
    let config = SessionConfig { max_dropout: 150_000, min_cohort: 130, ..config(130, 2) };
    let params = config.params(130).unwrap();
    assert!(!params.masks_are_complete() && params.out_degree() < 60, "{params:?}");
    let drops = (0..130).map(|i| if i % 10 == 3 { 2 } else { 5 }).collect();
    check(&config, &Course { drops, restarts: false, replays: false, shuffles: true }, 11);
}

#[test]
fn a_privacy_mechanism_can_ask_for_more_survivors_than_the_threshold() {
    let config = SessionConfig { min_included: 5, min_cohort: 5, ..config(6, 2) };
    let course = |drops: [u8; 6]| Course { drops: drops.to_vec(), restarts: true, replays: false, shuffles: false };
    check(&config, &course([5, 5, 5, 5, 5, 2]), 1);
    check(&config, &course([5, 5, 5, 5, 2, 2]), 2);
}
