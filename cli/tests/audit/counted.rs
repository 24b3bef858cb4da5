//! The audit by one run of counted participations, end to end under secure aggregation.
//!
//! As in `canaries`, a canary is a participant with a coordinate of its own, and a fair coin enrols it or leaves it out. Silent ones fill the
//! population up to a fixed size. Each takes part in one of four rounds; the ledger charges one release.

use client_sdk::faults::Fault as Wrong;
use learning::privacy::audit::{Design, Guesses};
use rand::Rng as _;
use serde_json::json;
use wire::RoundState;
use wire::inspect::PrivacyReport;

use crate::device::{Character, stream};
use crate::world::Federation;

const SEED: u64 = 6;
const CANARIES: usize = 128;
const ROUNDS: u32 = 4;
const COHORT: usize = 24;
/// Epsilon of the task at [`DELTA`], for one participation.
const EPSILON: f64 = 1.0;
const DELTA: f64 = 1e-5;

/// The guesses, settled before any score is seen, for a build without noise.
const DESIGN: Design = Design { canaries: 128, guesses_each: 16, shift: f64::INFINITY, delta: DELTA, confidence: 0.99 };

/// Runs all rounds; returns the lower bound on epsilon, and the ledger.
async fn bound(wrong: Option<Wrong>) -> (f64, PrivacyReport) {
    let spec = json!({
        "rounds": {
            "count": ROUNDS, "select_max": COHORT, "collect_min": 3,
            "select_deadline_ms": 60_000, "collect_deadline_ms": 60_000,
        },
        "selection": { "cohort": { "count": COHORT }, "require": { "max_participations": 1 } },
        "secure_aggregation": {
            "share_deadline_ms": 60_000, "confirm_deadline_ms": 60_000, "unmask_deadline_ms": 60_000,
        },
        "privacy": {
            "mechanism": "distributed_discrete_gaussian", "participations": 1, "epsilon": EPSILON, "delta": DELTA,
            "clip": { "fixed": 1.0 },
        },
    });
    let mut rng = stream(SEED, 5, 0);
    let coins: Vec<bool> = (0..CANARIES).map(|_| rng.next_u32() >> 31 == 1).collect();
    let canary = |index| {
        let mut update = vec![0.0; CANARIES];
        update[index] = 1.0;
        Character { update, fault: wrong, vanishes: None }
    };
    let mut characters: Vec<_> = (0..CANARIES).filter(|&index| coins[index]).map(canary).collect();
    assert!(characters.len() <= ROUNDS as usize * COHORT);
    let silent = Character { update: vec![0.0; CANARIES], fault: wrong, vanishes: None };
    characters.resize(ROUNDS as usize * COHORT, silent);
    let mut federation = Federation::new(SEED, CANARIES, &spec, None, characters).await;
    for round in 1..=ROUNDS {
        let view = federation.end(federation.task, round, 1).await;
        assert_eq!((view.state, view.failure), (RoundState::Completed, None), "{view:?}");
    }
    let (before, after) = (federation.model(0).await, federation.model(ROUNDS).await);
    let scores: Vec<f64> = before.iter().zip(&after).map(|(a, b)| f64::from(*b) - f64::from(*a)).collect();
    for device in &federation.devices {
        let releases: Vec<_> = device.privacy_spent().iter().map(|task| task.releases).collect();
        assert_eq!(releases, [1], "each was in one round, and charged itself for it");
        assert!(device.refusals.iter().all(|why| why.contains("has sent 1 updates")), "{:?}", device.refusals);
    }
    let ledger = federation.ledger().await;
    federation.stop().await;
    let each = DESIGN.guesses_each as usize;
    let guesses = Guesses::from_scores(&scores, &coins, each, each).unwrap();
    let bound = guesses.epsilon_at_least(DELTA, DESIGN.confidence).unwrap();
    println!("counted, {wrong:?}: {} of {} right, epsilon >= {bound}", guesses.correct(), 2 * each);
    (bound, ledger)
}

#[tokio::test]
async fn counted_participations_are_within_their_ledger_and_silence_is_caught() {
    let power = DESIGN.power(EPSILON).unwrap();
    assert!(power >= 0.99, "{power}");
    let (clean, ledger) = bound(None).await;
    assert_eq!(ledger.releases.len(), ROUNDS as usize);
    assert!(ledger.releases.iter().all(|row| row.total == ledger.spent), "{ledger:?}");
    let charged = ledger.spent.server.unwrap();
    // A full cohort adds more noise than the smallest that was planned for.
    assert!(charged <= EPSILON && charged > 0.6 * EPSILON, "{charged}");
    assert!(clean <= charged, "epsilon is at least {clean} where {charged} was charged");

    let (silent, ledger) = bound(Some(Wrong::NoNoise)).await;
    let charged = ledger.spent.server.unwrap();
    assert!(silent > charged, "it was not caught: epsilon is at least {silent} where {charged} was charged");
}
