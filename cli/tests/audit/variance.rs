//! The noise has the width of the ledger, end to end under secure aggregation with 30 % dropouts: otherwise the
//! two-sided test of its variance fails.
//!
//! The sum before the noise is known from a twin: the same federation under the same seed, whose participants clip,
//! rotate and round with the same draws and then leave out the noise.

use client_sdk::faults::Fault as Wrong;
use coordinator::faults::Fault;
use learning::NoisedSum;
use learning::privacy::audit::{NoiseVariance, noise_power};
use rand::Rng as _;
use serde_json::json;

use crate::CONFIDENCE;
use crate::device::{Character, Vanishes, stream};
use crate::world::{Federation, charged_sigma, residual};

const SEED: u64 = 1;
const COORDINATES: u32 = 4096;
const COHORT: usize = 10;
const SURVIVORS: u32 = 7;

/// Runs one round; returns its released sum and the charged standard deviation.
async fn round(mechanism: &str, wrong: Option<Wrong>, fault: Option<Fault>) -> (NoisedSum, f64) {
    let spec = json!({
        "rounds": {
            "count": 1, "select_max": COHORT, "collect_min": 3,
            "select_deadline_ms": 60_000, "collect_deadline_ms": 60_000,
        },
        "selection": { "cohort": { "count": COHORT }, "seed": 1 },
        "secure_aggregation": {
            "max_dropout_fraction": 0.3, "max_corrupt_fraction": 0.1,
            "share_deadline_ms": 60_000, "confirm_deadline_ms": 60_000, "unmask_deadline_ms": 60_000,
        },
        "privacy": { "mechanism": mechanism, "noise_multiplier": 1.0, "delta": 1e-5, "clip": { "fixed": 5.0 } },
    });
    let character = |index| Character {
        update: update(index),
        fault: wrong,
        vanishes: match index {
            2 => Some(Vanishes::BeforeSharing),
            5 | 6 => Some(Vanishes::InTraining),
            _ => None,
        },
    };
    let characters = (0..COHORT).map(character).collect();
    let mut federation = Federation::new(SEED, COORDINATES as usize, &spec, fault, characters).await;
    federation.complete(1).await;
    let ledger = federation.ledger().await;
    let released = federation.released(1).await;
    assert_eq!((ledger.releases.len(), ledger.smallest_cohort, ledger.colluders), (1, SURVIVORS, 0));
    assert_eq!((released.participants(), released.words().len()), (SURVIVORS, COORDINATES as usize));
    federation.stop().await;
    (released, charged_sigma(&ledger.releases[0].parameters))
}

/// Longer than the clip: its norm is about 18.
fn update(index: usize) -> Vec<f32> {
    let mut rng = stream(SEED, 4, index);
    let mut uniform = || f32::from(u16::try_from(rng.next_u32() >> 16).unwrap()) / 65_536.0 - 0.5;
    (0..COORDINATES).map(|_| uniform()).collect()
}

async fn is_audited(mechanism: &str) {
    for ratio in [0.0, 0.25, 0.7].map(|ratio: f64| ratio.max(1e-6)) {
        assert!(noise_power(COORDINATES, ratio, CONFIDENCE).unwrap() >= 0.99, "{ratio}");
    }
    let (exact, _) = round(mechanism, Some(Wrong::NoNoise), None).await;
    assert!(exact.words().iter().filter(|&&word| word != 0).count() > COORDINATES as usize / 2, "there was a sum");
    let look = async |wrong, fault| {
        let (released, sigma) = round(mechanism, wrong, fault).await;
        let seen = NoiseVariance::of(&residual(&released, &exact), sigma, CONFIDENCE).unwrap();
        println!("{mechanism}, {wrong:?}, {fault:?}: {seen:?}");
        seen
    };
    let clean = look(None, None).await;
    assert!(clean.is_as_charged(), "{clean:?}");
    for (wrong, fault, ratio) in [
        (Some(Wrong::NoNoise), None, 0.0),
        (Some(Wrong::HalfNoise), None, 0.25),
        (None, Some(Fault::DropoutsCounted), 0.7),
    ] {
        let seen = look(wrong, fault).await;
        assert!(!seen.is_as_charged(), "{wrong:?} {fault:?} was not caught: {seen:?}");
        // The estimate contains the true ratio.
        assert!(seen.low <= ratio && ratio <= seen.high, "{wrong:?} {fault:?}: {seen:?}");
    }
}

#[tokio::test]
async fn noise_of_discrete_gaussian_shares_is_what_the_ledger_says_and_less_is_caught() {
    is_audited("distributed_discrete_gaussian").await;
}

#[tokio::test]
async fn noise_of_skellam_shares_is_what_the_ledger_says_and_less_is_caught() {
    is_audited("distributed_skellam").await;
}
