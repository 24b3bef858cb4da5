//! The parts of the utility one by one, then their combination in a cohort.

use std::collections::{BTreeMap, BTreeSet};

use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;

use super::*;
use crate::cohort::CoarseLoss;
use crate::time::Timestamp;

/// Only exploits, and takes exactly the best.
const GREEDY: Oort = Oort {
    exploration: 0.0,
    exploration_decay: 1.0,
    exploration_min: 0.0,
    alpha: 2.0,
    pacer_window: 5,
    pacer_start: 50,
    pacer_step: 10,
    clip_quantile: 1.0,
    cutoff: 1.0,
    blacklist_after: 0,
};

fn known(id: u128, loss: f64, duration_ms: u64) -> Candidate {
    Candidate {
        participant: ParticipantId(uuid::Uuid::from_u128(id)),
        labels: BTreeMap::new(),
        examples: 100,
        participations: 1,
        last: Some((1, Timestamp(0))),
        loss: CoarseLoss::of(loss),
        duration_ms: Some(duration_ms),
        round_trip_ms: None,
    }
}

fn fresh(id: u128) -> Candidate {
    Candidate { participations: 0, last: None, loss: None, duration_ms: None, ..known(id, 1.0, 1) }
}

fn drawn(oort: &Oort, candidates: &[Candidate], round: u32, count: usize, seed: u64) -> BTreeSet<u128> {
    let history = History { round, utilities: Vec::new() };
    let ids = oort.select(candidates, &history, count, &mut ChaCha20Rng::seed_from_u64(seed));
    let set: BTreeSet<_> = ids.iter().map(|id| id.0.as_u128()).collect();
    assert_eq!(set.len(), ids.len(), "one was drawn twice");
    assert_eq!(set.len(), count.min(candidates.len()));
    set
}

#[test]
fn exploration_decays_to_its_floor() {
    let oort = Oort::default();
    let explorers: Vec<_> = [1, 2, 11, 51, 1000].iter().map(|&round| explorers(&oort, 100, round)).collect();
    assert_eq!(explorers, [90, 88, 74, 33, 20], "100 * max(0.9 * 0.98^(round - 1), 0.2)");
}

#[test]
fn the_utility_is_the_papers() {
    // In round 8 with last rounds 1 and 4, losses 4 and 1, T = 100.
    let candidates = [known(1, 4.0, 200), Candidate { last: Some((4, Timestamp(0))), ..known(2, 1.0, 50) }];
    let utilities = utilities(&GREEDY, &candidates.each_ref(), Some(100), 8);
    let stale = |last: f64| (0.1 * 8_f64.ln() / last).sqrt();
    assert!((utilities[0] - (1.0 + stale(1.0)) * 0.25).abs() < 1e-12, "twice too slow, squared");
    assert!((utilities[1] - (0.25 + stale(4.0))).abs() < 1e-12);
}

#[test]
fn the_highest_losses_are_taken_and_more_data_counts_more() {
    let mut candidates: Vec<_> = (1..=6).map(|id| known(id, 0.5_f64.powi(i32::try_from(id).unwrap()), 10)).collect();
    assert_eq!(drawn(&GREEDY, &candidates, 2, 3, 0), BTreeSet::from([1, 2, 3]));
    candidates[5].examples = 100_000;
    assert_eq!(drawn(&GREEDY, &candidates, 2, 1, 0), BTreeSet::from([6]));
}

#[test]
fn slow_participants_are_held_back_until_the_pacer_relaxes() {
    let candidates = [known(1, 4.0, 1000), known(2, 2.0, 10), known(3, 2.0, 10), known(4, 1.0, 10)];
    assert_eq!(drawn(&GREEDY, &candidates, 2, 2, 0), BTreeSet::from([2, 3]));
    assert!(drawn(&Oort { alpha: 0.0, ..GREEDY }, &candidates, 2, 2, 0).contains(&1));

    let preferred = |utilities: &[f64]| preferred_duration(&GREEDY, &candidates, utilities);
    assert_eq!(preferred(&[]), Some(10), "the median of the durations");
    let falling: Vec<_> = (0..10).map(|round| f64::from(100 - round)).collect();
    assert_eq!(preferred(&falling[..9]), Some(10), "the second window is not over");
    let four = [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)].map(|(id, took)| known(id, 1.0, took));
    let of_five = |utilities: &[f64]| preferred_duration(&GREEDY, &four, utilities);
    assert_eq!(of_five(&[]), Some(30));
    assert_eq!(of_five(&falling), Some(40), "the second window gained less: the 60th percentile");
    let rising: Vec<_> = falling.iter().rev().copied().collect();
    assert_eq!(of_five(&rising), Some(30));
    let long: Vec<_> = (0..30).map(|round| f64::from(100 - round)).collect();
    assert_eq!(of_five(&long), None, "relaxed five times, nobody is too slow");
}

#[test]
fn an_outlier_is_clipped() {
    let mut candidates: Vec<_> = (1..=20).map(|id| known(id, 1.0, 10)).collect();
    candidates[0].examples = u64::MAX;
    let unclipped = utilities(&GREEDY, &candidates.iter().collect::<Vec<_>>(), None, 1);
    assert!(unclipped[1] < 1e-9, "one absurd claim leaves nothing to the others");
    let clipped = utilities(&Oort { clip_quantile: 0.95, ..GREEDY }, &candidates.iter().collect::<Vec<_>>(), None, 1);
    assert!(clipped.iter().all(|&utility| (utility - 1.0).abs() < 1e-12));
}

#[test]
fn explorers_come_from_those_unknown_and_places_nobody_fills_go_to_the_other_side() {
    let half = Oort { exploration: 0.5, ..GREEDY };
    let mixed: Vec<_> = (1..=10).map(|id| known(id, 1.0, 10)).chain((11..=20).map(fresh)).collect();
    for seed in 0..20 {
        let drawn = drawn(&half, &mixed, 1, 8, seed);
        assert_eq!(drawn.iter().filter(|&&id| id > 10).count(), 4);
    }
    assert_eq!(drawn(&half, &mixed[..10], 1, 8, 0).len(), 8);
    assert_eq!(drawn(&half, &mixed[10..], 1, 8, 0).len(), 8);
    assert_eq!(drawn(&half, &mixed[8..12], 1, 8, 0), BTreeSet::from([9, 10, 11, 12]));
}

#[test]
fn whoever_never_answers_takes_no_explorers_place_and_is_tried_less_and_less() {
    let silent = |id, participations| Candidate { loss: None, participations, ..known(id, 1.0, 10) };
    let mut candidates: Vec<_> = (1..=4).map(fresh).collect();
    candidates.extend([silent(11, 1), silent(12, 9), known(21, 1.0, 10), known(22, 1.0, 10)]);
    let (explorer, half) = (Oort { exploration: 1.0, ..GREEDY }, Oort { exploration: 0.5, ..GREEDY });
    for seed in 0..20 {
        let ids = |oort: &Oort, count| drawn(oort, &candidates, 1, count, seed);
        assert!(ids(&explorer, 4).iter().all(|&id| id <= 4), "those never drawn first");
        assert_eq!(ids(&half, 6), BTreeSet::from([1, 2, 3, 4, 21, 22]), "then those who answer");
    }
    let tried = (0..1000).filter(|&seed| drawn(&half, &candidates, 1, 7, seed).contains(&12)).count();
    // Binomial(1000, (1/10) / (1/2 + 1/10)): mean 167, deviation 11.8; six deviations.
    assert!((96..=238).contains(&tried), "{tried}");
}

#[test]
fn whoever_lost_its_loss_has_a_chance_to_tell_one_again_when_all_were_drawn() {
    let candidates = (1..=8).chain(11..=18).map(|id| known(id, 4.0, 10));
    let silent = |one: Candidate| if one.participant.0.as_u128() > 10 { Candidate { loss: None, ..one } } else { one };
    let candidates: Vec<_> = candidates.map(silent).collect();
    let quarter = Oort { exploration: 0.25, ..GREEDY };
    for seed in 0..20 {
        assert_eq!(drawn(&quarter, &candidates, 9, 8, seed).iter().filter(|&&id| id > 10).count(), 2);
    }
}

#[test]
fn whoever_was_drawn_often_is_passed_over_while_others_are_there() {
    let limited = Oort { blacklist_after: 10, ..GREEDY };
    let mut candidates: Vec<_> = (1..=4).map(|id| known(id, 1.0, 10)).collect();
    (candidates[0].loss, candidates[0].participations) = (CoarseLoss::of(40.0), 12);
    (candidates[1].loss, candidates[1].participations) = (CoarseLoss::of(40.0), 10);
    assert_eq!(drawn(&limited, &candidates, 2, 2, 0), BTreeSet::from([3, 4]));
    assert_eq!(drawn(&limited, &candidates, 2, 3, 0), BTreeSet::from([2, 3, 4]), "then the one drawn least");
    assert_eq!(drawn(&limited, &candidates, 2, 9, 0).len(), 4);
}

#[test]
fn chance_decides_above_the_cutoff() {
    let oort = Oort { cutoff: 0.4, ..GREEDY };
    let candidates: Vec<_> = [4.0, 4.0, 2.0, 1.0].into_iter().zip(1..).map(|(loss, id)| known(id, loss, 10)).collect();
    let mut ever = BTreeSet::new();
    for seed in 0..100 {
        ever.extend(drawn(&oort, &candidates, 1, 2, seed));
    }
    assert_eq!(ever, BTreeSet::from([1, 2, 3]), "half the utility of the second is enough, a quarter is not");
}
