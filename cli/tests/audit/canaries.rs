//! The audit by one run (Steinke, Nasr, Jagielski 2023), end to end, of the central mechanism.
//!
//! The unit of privacy is one participant, so a canary is one, too. Each of 2,048 participants has a coordinate of its
//! own in which it alone moves the model, 32 clips far, and a fair coin that enrols it or leaves it out. The test
//! guesses the enrolled ones from the published model: the highest coordinates in, the lowest out. Others, with updates
//! of zero, fill the cohort up to a fixed size, so only the sum depends on the coins.
//!
//! Updates are unmasked: secure aggregation keeps every bit of a sum, and its cohorts have at most 1,024 participants.
//! A coordinator that can read updates rejects unclipped ones, so the build without clipping skips that check.

use client_sdk::faults::Fault as Wrong;
use coordinator::faults::Fault;
use learning::NoisedSum;
use learning::privacy::audit::{Design, Guesses, NoiseVariance, noise_power};
use rand::Rng as _;
use serde_json::json;
use wire::inspect::PrivacyReport;

use crate::CONFIDENCE;
use crate::device::{Character, stream};
use crate::world::{Federation, charged_sigma, residual};

const SEED: u64 = 3;
const CANARIES: usize = 2048;
/// Canaries that are in, 1,024 give or take 23, and participants that fill up the cohort.
const COHORT: usize = 1100;
/// Length of an update over the clip.
const TIMES: f32 = 32.0;
/// Epsilon of the task, which is solved for, at [`DELTA`].
const EPSILON: f64 = 1.0;
const DELTA: f64 = 1e-5;

/// The guesses, settled before any score is seen; only the shift depends on the fault.
const DESIGN: Design =
    Design { canaries: 2048, guesses_each: 700, shift: f64::INFINITY, delta: DELTA, confidence: 0.99 };

/// Release of one build.
struct Release {
    /// The lower bound on epsilon.
    bound: f64,
    sum: NoisedSum,
    ledger: PrivacyReport,
}

fn coins() -> Vec<bool> {
    let mut rng = stream(SEED, 5, 0);
    (0..CANARIES).map(|_| rng.next_u32() >> 31 == 1).collect()
}

async fn release(wrong: Option<Wrong>, fault: Option<Fault>) -> Release {
    let spec = json!({
        "rounds": {
            "count": 1, "select_min": COHORT, "select_max": COHORT, "collect_min": COHORT,
            "select_deadline_ms": 60_000, "collect_deadline_ms": 60_000,
        },
        "selection": { "cohort": { "count": COHORT }, "seed": 1 },
        "secure_aggregation": { "enabled": false },
        "privacy": { "mechanism": "central_gaussian", "epsilon": EPSILON, "delta": DELTA, "clip": { "fixed": 1.0 } },
    });
    let coins = coins();
    let canary = |index| {
        let mut update = vec![0.0; CANARIES];
        update[index] = TIMES;
        Character { update, fault: wrong, vanishes: None }
    };
    let silent = Character { update: vec![0.0; CANARIES], fault: wrong, vanishes: None };
    let mut characters: Vec<_> = (0..CANARIES).filter(|&index| coins[index]).map(canary).collect();
    characters.resize(COHORT, silent);
    let mut federation = Federation::new(SEED, CANARIES, &spec, fault, characters).await;
    federation.complete(1).await;
    let (before, after) = (federation.model(0).await, federation.model(1).await);
    let scores: Vec<f64> = before.iter().zip(&after).map(|(a, b)| f64::from(*b) - f64::from(*a)).collect();
    let (sum, ledger) = (federation.released(1).await, federation.ledger().await);
    federation.stop().await;
    let each = DESIGN.guesses_each as usize;
    let guesses = Guesses::from_scores(&scores, &coins, each, each).unwrap();
    let bound = guesses.epsilon_at_least(DELTA, DESIGN.confidence).unwrap();
    let z = ledger.spec.noise_multiplier.unwrap();
    println!("{wrong:?}, {fault:?}, z = {z}: {} of {} right, epsilon >= {bound}", guesses.correct(), 2 * each);
    Release { bound, sum, ledger }
}

/// The lower bound, settled before anything runs, on the probability that the bound is above epsilon.
///
/// Without noise every guess can be right. Without clipping a canary is so much longer than the noise, whose multiplier `z` the
/// task is given when it is made; rounding makes the noise a little wider than the clip requires.
fn power(fault: Fault, z: f64) -> f64 {
    let shift = if fault == Fault::NoNoise { f64::INFINITY } else { f64::from(TIMES) / (1.1 * z) };
    Design { shift, ..DESIGN }.power(EPSILON).unwrap()
}

/// Sampling is off, so both figures are equal.
fn charged(release: &Release) -> f64 {
    let spent = &release.ledger.spent;
    assert!(spent.published <= EPSILON && spent.published > 0.99 * EPSILON, "{spent:?}");
    assert!(spent.cohort_known.to_bits() == spent.published.to_bits(), "{spent:?}");
    spent.published
}

fn assert_caught(faulty: &Release, fault: Fault) {
    let power = power(fault, faulty.ledger.spec.noise_multiplier.unwrap());
    println!("{fault:?}: caught with a probability of at least {power}");
    assert!(power >= 0.99, "{power}");
    let (bound, ledger) = (faulty.bound, charged(faulty));
    assert!(bound > ledger, "{fault:?} was not caught: epsilon is at least {bound} where {ledger} was charged");
}

#[tokio::test]
async fn the_clean_build_is_within_its_ledger_and_one_without_noise_is_caught() {
    let clean = release(None, None).await;
    let (bound, ledger) = (clean.bound, charged(&clean));
    assert!(bound <= ledger, "epsilon is at least {bound} where {ledger} was charged");

    let silent = release(None, Some(Fault::NoNoise)).await;
    assert_caught(&silent, Fault::NoNoise);

    assert!(noise_power(DESIGN.canaries, 0.75, CONFIDENCE).unwrap() >= 0.99);
    let sigma = charged_sigma(&clean.ledger.releases[0].parameters);
    let seen = NoiseVariance::of(&residual(&clean.sum, &silent.sum), sigma, CONFIDENCE).unwrap();
    println!("the clean build's noise: {seen:?}");
    assert!(seen.is_as_charged(), "{seen:?}");
}

#[tokio::test]
async fn a_build_without_clipping_is_caught() {
    assert_caught(&release(Some(Wrong::NoClipping), Some(Fault::NoClipping)).await, Fault::NoClipping);
}
