//! Who is eligible, how many are wanted, and which ones are drawn.

use std::collections::{BTreeMap, BTreeSet};

use federation::cohort::{Candidate, Cohort, Ineligible, Requirements, Selector, Uniform};
use federation::id::ParticipantId;
use federation::time::Timestamp;
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;

const NOW: Timestamp = Timestamp(1_000_000);

fn candidate(id: u128) -> Candidate {
    Candidate {
        participant: ParticipantId(uuid::Uuid::from_u128(id)),
        labels: BTreeMap::from([("region".to_owned(), "eu".to_owned())]),
        examples: 100,
        participations: 0,
        last: None,
    }
}

fn requirements() -> Requirements {
    Requirements {
        labels: BTreeMap::from([("region".to_owned(), "eu".to_owned())]),
        min_examples: 100,
        min_gap_ms: 5_000,
        min_gap_rounds: 2,
        max_participations: 3,
    }
}

fn check(change: impl FnOnce(&mut Candidate), number: u32) -> Result<(), Ineligible> {
    let mut candidate = candidate(1);
    change(&mut candidate);
    requirements().check(&candidate, number, NOW)
}

#[test]
fn whoever_meets_every_requirement_is_eligible() {
    assert_eq!(check(|_| {}, 1), Ok(()));
    assert_eq!(check(|c| c.last = Some((1, Timestamp(NOW.0 - 5_000))), 4), Ok(()));
    assert_eq!(check(|c| c.participations = 2, 1), Ok(()));
    assert_eq!(check(|c| drop(c.labels.insert("more".into(), "labels".into())), 1), Ok(()));
    assert_eq!(Requirements::default().check(&candidate(1), 1, NOW), Ok(()));
}

#[test]
fn each_requirement_refuses_on_its_own() {
    assert_eq!(check(|c| c.labels.clear(), 1), Err(Ineligible::Labels));
    assert_eq!(check(|c| drop(c.labels.insert("region".into(), "us".into())), 1), Err(Ineligible::Labels));
    assert_eq!(check(|c| c.examples = 99, 1), Err(Ineligible::TooFewExamples));
    assert_eq!(check(|c| c.participations = 3, 1), Err(Ineligible::ParticipationCap));
    assert_eq!(check(|c| c.last = Some((1, Timestamp(NOW.0 - 4_999))), 9), Err(Ineligible::TooSoon));
    assert_eq!(check(|c| c.last = Some((1, Timestamp(NOW.0 - 99_999))), 3), Err(Ineligible::TooSoon));
}

#[test]
fn a_failed_attempt_is_no_reason_to_sit_its_round_out() {
    assert_eq!(check(|c| c.last = Some((3, Timestamp(NOW.0 - 99_999))), 3), Ok(()));
}

#[test]
fn a_clock_that_was_set_back_locks_nobody_out() {
    assert_eq!(check(|c| c.last = Some((1, Timestamp(NOW.0 + 1))), 9), Ok(()));
}

#[test]
fn a_fraction_is_rounded_up_but_not_for_a_rounding_error() {
    let target = |fraction: f64, eligible| Cohort::Fraction(fraction).target(eligible);
    assert_eq!(target(0.5, 5), 3);
    assert_eq!(target(0.07, 100), 7, "0.07 * 100 is a hair above 7 in binary");
    assert_eq!(target(0.000_001, 1), 1);
    assert_eq!(target(1e-12, 1), 1);
    assert_eq!(target(1.0, 65_536), 65_536);
    assert_eq!(target(0.5, 0), 0);
    assert_eq!(Cohort::Count(10).target(3), 3);
    assert_eq!(Cohort::Count(10).target(30), 10);
}

#[test]
fn every_candidate_is_drawn_about_as_often_over_many_seeds() {
    let candidates: Vec<_> = (0..10).map(candidate).collect();
    let mut drawn: BTreeMap<ParticipantId, u32> = BTreeMap::new();
    for seed in 0..2_000 {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        for id in Uniform.select(&candidates, 3, &mut rng) {
            *drawn.entry(id).or_default() += 1;
        }
    }
    // Binomial(2000, 0.3): mean 600, deviation 20.5; six deviations.
    assert_eq!(drawn.len(), 10);
    assert!(drawn.values().all(|&count| (477..=723).contains(&count)), "{drawn:?}");
}

#[test]
fn every_pair_is_drawn_about_as_often_over_many_seeds() {
    let candidates: Vec<_> = (0..5).map(candidate).collect();
    let mut pairs: BTreeMap<BTreeSet<ParticipantId>, u32> = BTreeMap::new();
    for seed in 0..2_000 {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        *pairs.entry(Uniform.select(&candidates, 2, &mut rng).into_iter().collect()).or_default() += 1;
    }
    // Ten pairs, Binomial(2000, 0.1): mean 200, deviation 13.4; six deviations.
    assert_eq!(pairs.len(), 10);
    assert!(pairs.values().all(|&count| (120..=280).contains(&count)), "{pairs:?}");
}

proptest! {
    #[test]
    fn a_draw_is_a_repeatable_subset_of_the_wanted_size(people in 0_u128..40, count in 0_usize..50, seed: u64) {
        let candidates: Vec<_> = (0..people).map(candidate).collect();
        let draw = || Uniform.select(&candidates, count, &mut ChaCha20Rng::seed_from_u64(seed));
        let drawn = draw();
        prop_assert_eq!(drawn.len(), count.min(candidates.len()));
        prop_assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), drawn.len());
        prop_assert!(drawn.iter().all(|id| candidates.iter().any(|candidate| candidate.participant == *id)));
        prop_assert_eq!(drawn, draw());
    }

    #[test]
    fn a_target_is_between_one_and_everybody(fraction in 1e-9_f64..=1.0, eligible in 1_u32..100_000) {
        let target = Cohort::Fraction(fraction).target(eligible);
        prop_assert!((1..=eligible).contains(&target));
        prop_assert!(f64::from(target) + 1e-6 >= fraction * f64::from(eligible));
        prop_assert!(f64::from(target) < fraction * f64::from(eligible) + 1.0);
    }
}
