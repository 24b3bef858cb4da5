//! Eligibility, cohort sizes and selection.

use std::collections::{BTreeMap, BTreeSet};

use federation::cohort::{Candidate, CoarseLoss, History, Ineligible, RoundRobin, Selector, Uniform};
use federation::id::ParticipantId;
use federation::time::Timestamp;
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use task_spec::{Cohort, Oort, PowerOfChoice, Quotas, Requirements, Stratified};

const NOW: Timestamp = Timestamp(1_000_000);

fn candidate(id: u128) -> Candidate {
    Candidate {
        participant: ParticipantId(uuid::Uuid::from_u128(id)),
        labels: BTreeMap::from([("region".to_owned(), "eu".to_owned())]),
        examples: 100,
        participations: 0,
        last: None,
        loss: None,
        duration_ms: None,
        round_trip_ms: None,
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
    candidate.check(&requirements(), number, NOW)
}

#[test]
fn whoever_meets_every_requirement_is_eligible() {
    assert_eq!(check(|_| {}, 1), Ok(()));
    assert_eq!(check(|c| c.last = Some((1, Timestamp(NOW.0 - 5_000))), 4), Ok(()));
    assert_eq!(check(|c| c.participations = 2, 1), Ok(()));
    assert_eq!(check(|c| drop(c.labels.insert("more".into(), "labels".into())), 1), Ok(()));
    assert_eq!(candidate(1).check(&Requirements::default(), 1, NOW), Ok(()));
}

#[test]
fn each_requirement_refuses_on_its_own() {
    assert_eq!(check(|c| c.labels.clear(), 1), Err(Ineligible::Labels));
    assert_eq!(check(|c| drop(c.labels.insert("region".into(), "us".into())), 1), Err(Ineligible::Labels));
    assert_eq!(check(|c| c.examples = 99, 1), Err(Ineligible::TooFewExamples));
    assert_eq!(check(|c| c.examples = 0, 1), Ok(()), "it was asked, and said that it has enough");
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
        for id in Uniform.select(&candidates, &History::default(), 3, &mut rng) {
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
        *pairs
            .entry(Uniform.select(&candidates, &History::default(), 2, &mut rng).into_iter().collect())
            .or_default() += 1;
    }
    // Ten pairs, Binomial(2000, 0.1): mean 200, deviation 13.4; six deviations.
    assert_eq!(pairs.len(), 10);
    assert!(pairs.values().all(|&count| (120..=280).contains(&count)), "{pairs:?}");
}

fn selectors() -> Vec<Box<dyn Selector>> {
    let region = |quotas| Stratified { label: "region".into(), quotas };
    vec![
        Box::new(Uniform),
        Box::new(RoundRobin),
        Box::new(region(Quotas::Proportional)),
        Box::new(region(Quotas::Equal)),
        Box::new(PowerOfChoice { candidates: 7 }),
        Box::new(Oort::default()),
    ]
}

/// Draws round after round, and each time those drawn have taken part.
fn play(
    selector: &dyn Selector,
    candidates: &mut [Candidate],
    rounds: std::ops::RangeInclusive<u32>,
    count: usize,
) -> Vec<BTreeSet<u128>> {
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    rounds
        .map(|round| {
            let drawn = selector.select(candidates, &History { round, ..History::default() }, count, &mut rng);
            for candidate in candidates.iter_mut().filter(|candidate| drawn.contains(&candidate.participant)) {
                candidate.participations += 1;
                candidate.last = Some((round, NOW));
            }
            drawn.iter().map(|id| id.0.as_u128()).collect()
        })
        .collect()
}

#[test]
fn round_robin_draws_everybody_once_per_cycle() {
    let mut candidates: Vec<_> = (0..10).map(candidate).collect();
    let rounds = play(&RoundRobin, &mut candidates, 1..=15, 2);
    for cycle in rounds.chunks(5) {
        assert_eq!(cycle.iter().flatten().collect::<BTreeSet<_>>().len(), 10, "{rounds:?}");
    }
    // Also where the cohort does not divide the cycle.
    let mut candidates: Vec<_> = (0..10).map(candidate).collect();
    play(&RoundRobin, &mut candidates, 1..=10, 3);
    assert!(candidates.iter().all(|candidate| candidate.participations == 3));
}

#[test]
fn a_newcomer_to_a_round_robin_comes_next_but_does_not_catch_up() {
    let mut candidates: Vec<_> = (0..4).map(candidate).collect();
    play(&RoundRobin, &mut candidates, 1..=40, 2);
    candidates.push(candidate(9));
    let rounds = play(&RoundRobin, &mut candidates, 41..=45, 2);
    assert!(rounds[0].contains(&9) && !rounds[1].contains(&9), "{rounds:?}");
    assert!(candidates[4].participations <= 3, "ten places for five");
}

#[test]
fn strata_have_their_quotas_in_every_draw() {
    let candidates: Vec<_> = (0..20)
        .map(|id| {
            let mut candidate = candidate(id);
            match id {
                0..12 => drop(candidate.labels.insert("region".into(), "eu".into())),
                12..18 => drop(candidate.labels.insert("region".into(), "us".into())),
                _ => candidate.labels.clear(),
            }
            candidate
        })
        .collect();
    let counts = |quotas, seed| {
        let selector = Stratified { label: "region".into(), quotas };
        let drawn = selector.select(&candidates, &History::default(), 10, &mut ChaCha20Rng::seed_from_u64(seed));
        let of = |range: std::ops::Range<u128>| drawn.iter().filter(|id| range.contains(&id.0.as_u128())).count();
        [of(0..12), of(12..18), of(18..20)]
    };
    for seed in 0..20 {
        assert_eq!(counts(Quotas::Proportional, seed), [6, 3, 1]);
        assert_eq!(counts(Quotas::Equal, seed), [4, 4, 2]);
    }
}

#[test]
fn power_of_choice_takes_the_highest_losses_of_a_random_few() {
    let mut candidates: Vec<_> = (0..20).map(candidate).collect();
    for (candidate, loss) in candidates.iter_mut().zip(1_u8..) {
        candidate.loss = Some(CoarseLoss::try_from(loss).unwrap());
    }
    let drawn = |candidates: &[Candidate], first, seed| {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let ids = PowerOfChoice { candidates: first }.select(candidates, &History::default(), 3, &mut rng);
        ids.iter().map(|id| id.0.as_u128()).collect::<BTreeSet<_>>()
    };
    assert_eq!(drawn(&candidates, 20, 0), BTreeSet::from([17, 18, 19]), "of all, the three highest");
    let mean =
        |first| (0..200).map(|seed| drawn(&candidates, first, seed).iter().sum::<u128>()).sum::<u128>() as f64 / 600.0;
    // Of 3 the mean is that of all, 9.5; the expected mean of the top 3 of d among 0..20 is 21 (d - 1) / (d + 1) - 1.
    assert!((mean(3) - 9.5).abs() < 0.8 && (mean(6) - 14.0).abs() < 0.8, "{} {}", mean(3), mean(6));
    candidates[4].loss = None;
    assert!(drawn(&candidates, 20, 0).contains(&4), "a loss that nobody knows counts as the highest");
    candidates[..19].iter_mut().for_each(|candidate| candidate.examples = 1_000_000_000);
    candidates[19].examples = 1;
    assert!((0..50).all(|seed| !drawn(&candidates, 19, seed).contains(&19)), "drawn in proportion to the examples");
    candidates[19].examples = 0;
    let times = (0..50).filter(|seed| drawn(&candidates, 19, *seed).contains(&19)).count();
    assert!(times > 40, "a number that is not told counts as the mean: {times}");
}

proptest! {
    #[test]
    fn a_draw_is_a_repeatable_subset_of_the_wanted_size(
        people in proptest::collection::vec((0_u64..50, 0_u32..15, proptest::option::of(0_u8..32), 0_u8..4), 0..40),
        count in 0_usize..50,
        round in 0_u32..100,
        seed: u64,
    ) {
        let candidates: Vec<_> = people
            .into_iter()
            .zip(0..)
            .map(|((examples, participations, loss, region), id)| Candidate {
                labels: BTreeMap::from([("region".to_owned(), region.to_string())]),
                examples,
                participations,
                last: (participations > 0).then_some((participations, NOW)),
                loss: loss.map(|level| CoarseLoss::try_from(level).unwrap()),
                duration_ms: loss.map(u64::from),
                ..candidate(id)
            })
            .collect();
        let history = History { round, utilities: vec![1.0; round as usize] };
        for selector in selectors() {
            let draw = || selector.select(&candidates, &history, count, &mut ChaCha20Rng::seed_from_u64(seed));
            let drawn = draw();
            prop_assert_eq!(drawn.len(), count.min(candidates.len()));
            prop_assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), drawn.len());
            prop_assert!(drawn.iter().all(|id| candidates.iter().any(|candidate| candidate.participant == *id)));
            prop_assert_eq!(drawn, draw());
        }
    }

    /// Attempts at rounds, failed ones among them, with cohorts of any size: every draw counts.
    #[test]
    fn no_schedule_draws_a_participant_above_its_maximum(
        draws in proptest::collection::vec((1_u32..8, 1_usize..6), 1..40),
        most in 1_u32..4,
        seed: u64,
    ) {
        let require = Requirements { max_participations: most, ..Requirements::default() };
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut people: Vec<_> = (0..10).map(candidate).collect();
        for (round, count) in draws {
            let history = History { round, utilities: Vec::new() };
            let fits = |person: &&Candidate| person.check(&require, round, NOW).is_ok();
            let eligible: Vec<_> = people.iter().filter(fits).cloned().collect();
            let drawn = Uniform.select(&eligible, &history, count, &mut rng);
            for person in people.iter_mut().filter(|person| drawn.contains(&person.participant)) {
                (person.participations, person.last) = (person.participations + 1, Some((round, NOW)));
            }
            prop_assert!(people.iter().all(|person| person.participations <= most));
        }
    }

    #[test]
    fn a_target_is_between_one_and_everybody(fraction in 1e-9_f64..=1.0, eligible in 1_u32..100_000) {
        let target = Cohort::Fraction(fraction).target(eligible);
        prop_assert!((1..=eligible).contains(&target));
        prop_assert!(f64::from(target) + 1e-6 >= fraction * f64::from(eligible));
        prop_assert!(f64::from(target) < fraction * f64::from(eligible) + 1.0);
    }
}
