//! Released sums in stored form and their decoding: within the range of the participants' inputs, or rejected.

use learning::privacy::{ExactSum, NoisedSum};
use learning::quantize::{Codec, QuantizationParams};

fn codec() -> Codec {
    let params = QuantizationParams {
        parameters: 4,
        modulus_bits: 24,
        clip_range: 1.5,
        clip_norm: Some(2.0),
        max_weight: 3,
        max_cohort: 8,
        metrics: 1,
    };
    Codec::new(params).expect("parameters that leave headroom")
}

pub fn run(data: &[u8]) {
    let Ok(sum) = NoisedSum::from_bytes(data) else { return };
    assert_eq!(sum.to_bytes(), data, "a sum has one form");
    if let Ok(mean) = codec().decode(&sum) {
        let bound = 1.5 * (1.0 + f32::EPSILON);
        assert!(mean.delta.iter().all(|value| value.is_finite() && value.abs() <= bound), "{mean:?}");
        assert!((u64::from(mean.participants)..=3 * u64::from(mean.participants)).contains(&mean.weight));
    }
}

/// A sum of two plain updates, and an empty one.
pub fn seeds() -> Vec<Vec<u8>> {
    let codec = codec();
    let mut words = vec![0; codec.len()];
    words[0] = 5;
    words[1] = (1 << 24) - 7;
    words[4] = 2;
    let sum = |words: Vec<u32>| ExactSum::new(words, 24, 2).unwrap().release_without_noise().to_bytes();
    vec![sum(words), sum(vec![0; codec.len()])]
}
