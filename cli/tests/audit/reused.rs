//! Noise is drawn anew for every round: where two rounds have the same, their residuals are correlated.

use coordinator::faults::Fault;
use learning::privacy::audit::{Correlation, NoiseVariance};
use serde_json::json;

use crate::CONFIDENCE;
use crate::device::Character;
use crate::world::{Federation, charged_sigma};

const SEED: u64 = 2;
const COORDINATES: usize = 2048;
const COHORT: usize = 4;

/// The noise of two rounds of participants with updates of zero: it is all of the sums.
async fn noise(fault: Option<Fault>) -> [Vec<f64>; 2] {
    let spec = json!({
        "rounds": { "count": 2, "select_max": COHORT, "collect_min": COHORT },
        "selection": { "cohort": { "count": COHORT }, "seed": 1 },
        "secure_aggregation": { "enabled": false },
        "privacy": {
            "mechanism": "central_gaussian", "noise_multiplier": 1.0, "delta": 1e-5, "clip": { "fixed": 1.0 },
        },
    });
    let silent = Character { update: vec![0.0; COORDINATES], fault: None, vanishes: None };
    let mut federation = Federation::new(SEED, COORDINATES, &spec, fault, vec![silent; COHORT]).await;
    let mut noise = [Vec::new(), Vec::new()];
    for (number, noise) in (1..).zip(&mut noise) {
        federation.complete(number).await;
        let sum = federation.released(number).await;
        assert_eq!(sum.modulus_bits(), 32);
        *noise = sum.words().iter().map(|word| f64::from(word.cast_signed())).collect();
    }
    // The width of the reused noise is as charged.
    for (release, noise) in federation.ledger().await.releases.iter().zip(&noise) {
        let seen = NoiseVariance::of(noise, charged_sigma(&release.parameters), CONFIDENCE).unwrap();
        assert!(seen.is_as_charged(), "{seen:?}");
    }
    federation.stop().await;
    noise
}

#[tokio::test]
async fn noise_that_is_used_again_is_caught_by_its_correlation() {
    let [first, second] = noise(None).await;
    let clean = Correlation::of(&first, &second).unwrap();
    assert!(clean.p_value > 1.0 - CONFIDENCE, "{clean:?}");
    let [first, second] = noise(Some(Fault::ReusedNoise)).await;
    let reused = Correlation::of(&first, &second).unwrap();
    println!("clean: {clean:?}; reused: {reused:?}");
    assert!(reused.p_value < 1e-9, "{reused:?}");
}
