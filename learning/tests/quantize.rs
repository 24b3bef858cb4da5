//! Properties of the codec: exact sums, bounded error, headroom, unbiasedness, independence of order; and each rejection.

use learning::metrics::MAX_METRICS;
use learning::quantize::{MAX_COHORT, MIN_LEVELS};
use learning::{
    Codec, DecodeError, EncodeError, ExactSum, HeadroomError, MetricValue, NoisedSum, QuantizationParams,
    QuantizedUpdate, Update, WrongLength,
};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn params(parameters: usize, modulus_bits: u8, max_weight: u32, max_cohort: u32) -> QuantizationParams {
    QuantizationParams {
        parameters,
        modulus_bits,
        clip_range: 0.5,
        clip_norm: None,
        max_weight,
        max_cohort,
        metrics: 0,
    }
}

fn codec(parameters: usize, modulus_bits: u8, max_weight: u32, max_cohort: u32) -> Codec {
    Codec::new(params(parameters, modulus_bits, max_weight, max_cohort)).unwrap()
}

fn update(delta: Vec<f32>, examples: u64) -> Update {
    Update { delta, examples, metrics: vec![] }
}

/// Sums modulo 2^b, as `aggregation` does.
fn sum(codec: &Codec, updates: &[QuantizedUpdate]) -> NoisedSum {
    let bits = codec.params().modulus_bits;
    let mask = u32::MAX >> (32 - u32::from(bits));
    let mut words = vec![0_u32; codec.len()];
    for update in updates {
        for (sum, word) in words.iter_mut().zip(&update.words) {
            *sum = sum.wrapping_add(*word) & mask;
        }
    }
    ExactSum::new(words, bits, u32::try_from(updates.len()).unwrap()).unwrap().release_without_noise()
}

fn lift(word: u32, bits: u8) -> i64 {
    let word = i64::from(word);
    if word < 1 << (bits - 1) { word } else { word - (1 << bits) }
}

/// Always draws the same word: the two ends of stochastic rounding.
struct Constant(u32);

impl rand::TryRng for Constant {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(self.0)
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(u64::from(self.0) << 32 | u64::from(self.0))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        for (byte, value) in bytes.iter_mut().zip(self.0.to_le_bytes().into_iter().cycle()) {
            *byte = value;
        }
        Ok(())
    }
}

fn cohort() -> impl Strategy<Value = (u8, u32, Vec<(Vec<f32>, u64)>)> {
    let participant = (prop::collection::vec(-0.75_f32..0.75, 5), 1_u64..12);
    (16_u8..=32, 1_u32..8, prop::collection::vec(participant, 1..12))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_mean_is_the_weighted_mean_within_one_unit_per_participant((bits, max_weight, cohort) in cohort()) {
        let codec = codec(5, bits, max_weight, 12);
        let mut rng = ChaCha8Rng::seed_from_u64(u64::from(bits));
        let encoded: Vec<_> = cohort
            .iter()
            .map(|(delta, examples)| codec.encode(&update(delta.clone(), *examples), &mut rng).unwrap())
            .collect();

        // The sum modulo 2^b is the sum over the integers.
        let released = sum(&codec, &encoded);
        for (index, &word) in released.words().iter().enumerate() {
            let exact: i64 = encoded.iter().map(|update| lift(update.words[index], bits)).sum();
            prop_assert_eq!(lift(word, bits), exact);
        }

        let mean = codec.decode(&released).unwrap();
        let weights: Vec<f64> = cohort.iter().map(|(_, n)| (*n).min(u64::from(max_weight)) as f64).collect();
        let total: f64 = weights.iter().sum();
        prop_assert_eq!(mean.weight as f64, total);
        prop_assert_eq!(mean.participants as usize, cohort.len());
        let unit = cohort.len() as f64 / (codec.scale() * total);
        for (index, &got) in mean.delta.iter().enumerate() {
            let weighted = |((delta, _), w): (&(Vec<f32>, u64), &f64)| f64::from(delta[index].clamp(-0.5, 0.5)) * w;
            let reference = cohort.iter().zip(&weights).map(weighted).sum::<f64>() / total;
            prop_assert!((f64::from(got) - reference).abs() <= unit + 1e-7, "{} {} {}", got, reference, unit);
        }
    }

    #[test]
    fn the_order_of_arrival_changes_no_bit((bits, max_weight, cohort) in cohort(), seed in any::<u64>()) {
        let codec = codec(5, bits, max_weight, 12);
        let encode = |(index, (delta, examples)): (usize, &(Vec<f32>, u64))| {
            let mut rng = ChaCha8Rng::seed_from_u64(index as u64);
            codec.encode(&update(delta.clone(), *examples), &mut rng).unwrap()
        };
        let mut encoded: Vec<_> = cohort.iter().enumerate().map(encode).collect();
        let mean = codec.decode(&sum(&codec, &encoded)).unwrap();
        let by = (ChaCha8Rng::seed_from_u64(seed).next_u32() as usize) % encoded.len();
        encoded.rotate_left(by);
        encoded.reverse();
        prop_assert_eq!(codec.decode(&sum(&codec, &encoded)).unwrap(), mean);
    }

    #[test]
    fn metrics_are_the_weighted_means(values in prop::collection::vec((-5.0_f64..5.0, 0_u64..1000), 1..12)) {
        let codec = Codec::new(QuantizationParams { metrics: 2, ..params(1, 18, 3, 12) }).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let encode = |&(value, count): &(f64, u64)| {
            let metrics = vec![MetricValue { value, count }, MetricValue::default()];
            codec.encode(&Update { delta: vec![0.0], examples: 1, metrics }, &mut rng).unwrap()
        };
        let encoded: Vec<_> = values.iter().map(encode).collect();
        let metrics = codec.decode(&sum(&codec, &encoded)).unwrap().metrics;
        let count: u64 = values.iter().map(|v| v.1).sum();
        prop_assert_eq!(metrics[0].count, count);
        prop_assert_eq!(metrics[1], MetricValue::default());
        if count > 0 {
            let reference = values.iter().map(|v| v.0 * v.1 as f64).sum::<f64>() / count as f64;
            let bound = values.len() as f64 * 0.5 / 65536.0 / count as f64 + 1e-12;
            prop_assert!((metrics[0].value - reference).abs() <= bound, "{} {}", metrics[0].value, reference);
        }
    }
}

#[test]
fn a_full_cohort_at_the_bound_fits_and_nothing_more_would() {
    for bits in 16..=32 {
        let (max_weight, max_cohort) = (3, 17);
        let codec = codec(2, bits, max_weight, max_cohort);
        let half = (1_i64 << (bits - 1)) - 1;
        let most = i64::from(codec.levels()) * i64::from(max_weight * max_cohort);
        assert!(most <= half && most + i64::from(max_weight * max_cohort) > half, "{bits} bits");
        // Rounding always up and always down, from far beyond the range.
        for rng in [0, u32::MAX] {
            let extreme = update(vec![f32::MAX, f32::MIN], u64::MAX);
            let one = codec.encode(&extreme, &mut Constant(rng)).unwrap();
            let bound = i64::from(codec.levels() * max_weight);
            assert_eq!([lift(one.words[0], bits), lift(one.words[1], bits)], [bound, -bound]);
            let mean = codec.decode(&sum(&codec, &vec![one; max_cohort as usize])).unwrap();
            assert_eq!(mean.delta, [0.5, -0.5]);
            assert_eq!(mean.weight, u64::from(max_weight * max_cohort));
        }
    }
}

#[test]
fn no_word_exceeds_the_bound_that_is_told_and_a_cohort_of_it_fits() {
    for bits in 16..=32 {
        for (max_weight, max_cohort, metrics) in [(1, 3, 0), (2, 100, 0), (1, 3, 2), (4, 100, 1)] {
            let params = QuantizationParams { metrics, ..params(2, bits, max_weight, max_cohort) };
            let Ok(codec) = Codec::new(params) else { continue };
            let half = (1_u64 << (bits - 1)) - 1;
            assert!(u64::from(max_cohort) * codec.input_bound() <= half, "{bits} bits");
            let metrics = vec![MetricValue { value: -1024.0, count: (1 << 20) - 1 }; metrics];
            let extreme = Update { delta: vec![f32::MAX, f32::MIN], examples: u64::MAX, metrics };
            let words = codec.encode(&extreme, &mut Constant(u32::MAX)).unwrap().words;
            let largest = words.iter().map(|word| lift(*word, bits).unsigned_abs()).max();
            assert_eq!(largest, Some(codec.input_bound()), "{bits} bits, {max_weight}, {max_cohort}");
        }
    }
}

#[test]
fn rounding_is_down_or_up_and_right_on_average() {
    const DRAWS: usize = 200_000;
    let codec = codec(DRAWS, 16, 1, 500);
    let scale = codec.scale();
    for fraction in [0.0, 0.1, 0.5, 0.93] {
        for base in [-3.0, 0.0, 7.0] {
            #[expect(clippy::cast_possible_truncation, reason = "test values")]
            let value = ((base + fraction) / scale) as f32;
            let exact = f64::from(value) * scale;
            let mut rng = ChaCha8Rng::seed_from_u64(9);
            let words = codec.encode(&update(vec![value; DRAWS], 1), &mut rng).unwrap().words;
            let values: Vec<f64> = words[..DRAWS].iter().map(|&word| lift(word, 16) as f64).collect();
            assert!(values.iter().all(|v| *v == exact.floor() || *v == exact.ceil()), "{exact}");
            let mean = values.iter().sum::<f64>() / DRAWS as f64;
            // Six standard deviations of a Bernoulli mean at most.
            assert!((mean - exact).abs() <= 6.0 * 0.5 / (DRAWS as f64).sqrt(), "{mean} {exact}");
        }
    }
}

#[test]
fn clips_before_it_weighs() {
    let params = QuantizationParams { clip_norm: Some(1.0), clip_range: 1.0, ..params(2, 32, 10, 4) };
    let codec = Codec::new(params).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let large = codec.encode(&update(vec![30.0, -40.0], 10), &mut rng).unwrap();
    let small = codec.encode(&update(vec![0.3, 0.4], 5), &mut rng).unwrap();
    let mean = codec.decode(&sum(&codec, &[large, small])).unwrap();
    // (10 (0.6, -0.8) + 5 (0.3, 0.4)) / 15
    for (got, expected) in mean.delta.iter().zip([0.5, -0.4]) {
        assert!((got - expected).abs() < 1e-6, "{got} {expected}");
    }
}

#[test]
fn known_words_of_a_known_update() {
    let codec = Codec::new(QuantizationParams { metrics: 1, ..params(3, 16, 2, 10) }).unwrap();
    // B = floor(32767 / 20) = 1638, s = 3276; weight 2; limbs of 11 bits: 5 for the sum, 2 for the count.
    let metrics = vec![MetricValue { value: -0.5, count: 3 }];
    let update = Update { delta: vec![0.25, -0.125, 9.0], examples: 2, metrics };
    let words = codec.encode(&update, &mut Constant(0)).unwrap().words;
    // -0.5 * 3 * 2^16 = -98304 = -(48 * 2^11 + 0)
    let expected = [1638, 65536 - 819, 3276, 2, 0, 65536 - 48, 0, 0, 0, 3, 0];
    assert_eq!(words, expected);
    assert_eq!(words.len(), codec.len());
}

#[test]
fn the_same_draws_give_the_same_words_whatever_the_length() {
    let values: Vec<f32> = (0..3000).map(|i| (i as f32 / 3000.0) - 0.5).collect();
    let encode = |n: usize| {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        codec(n, 16, 1, 100).encode(&update(values[..n].to_vec(), 1), &mut rng).unwrap().words
    };
    assert_eq!(encode(2500)[..2500], encode(3000)[..2500]);
}

#[test]
fn refuses_parameters_without_headroom_and_says_what_would_do() {
    let error = |params| Codec::new(params).unwrap_err();
    let base = params(1, 16, 6, 100);
    let too_few = error(base);
    assert_eq!(
        too_few.to_string(),
        "100 updates of weight up to 6 leave 54 levels per side of zero modulo 2^16, fewer than 64; \
         this would do: max_weight 5, or max_cohort 85, or modulus_bits 17"
    );
    for (weight, cohort, bits) in [(5, 100, 16), (6, 85, 16), (6, 100, 17)] {
        assert!(Codec::new(params(1, bits, weight, cohort)).unwrap().levels() >= MIN_LEVELS);
    }
    for (weight, cohort) in [(6, 100), (6, 86)] {
        assert!(Codec::new(params(1, 16, weight, cohort)).is_err());
    }
    let hopeless = error(params(1, 32, u32::MAX, MAX_COHORT)).to_string();
    assert!(hopeless.contains("max_weight 511") && !hopeless.contains("modulus_bits 3"), "{hopeless}");
}

#[test]
fn refuses_parameters_that_are_none() {
    let error = |params| Codec::new(params).unwrap_err();
    let base = params(1, 32, 6, 100);
    assert_eq!(error(QuantizationParams { parameters: 0, ..base }), HeadroomError::Parameters(0));
    assert_eq!(error(QuantizationParams { parameters: 1 << 40, ..base }), HeadroomError::Parameters(1 << 40));
    for bits in [0, 15, 33, 255] {
        assert_eq!(error(QuantizationParams { modulus_bits: bits, ..base }), HeadroomError::ModulusBits(bits));
    }
    for range in [0.0, -1.0, f32::INFINITY, 1e-40] {
        assert_eq!(error(QuantizationParams { clip_range: range, ..base }), HeadroomError::ClipRange(range));
    }
    assert!(matches!(error(QuantizationParams { clip_range: f32::NAN, ..base }), HeadroomError::ClipRange(_)));
    let no_norm = QuantizationParams { clip_norm: Some(0.0), ..base };
    assert!(matches!(error(no_norm), HeadroomError::ClipNorm(_)));
    assert_eq!(error(QuantizationParams { max_weight: 0, ..base }), HeadroomError::MaxWeight);
    assert_eq!(error(QuantizationParams { max_cohort: 0, ..base }), HeadroomError::MaxCohort(0));
    let crowd = MAX_COHORT + 1;
    assert_eq!(error(QuantizationParams { max_cohort: crowd, ..base }), HeadroomError::MaxCohort(crowd));
    let metrics = MAX_METRICS + 1;
    assert_eq!(error(QuantizationParams { metrics, ..base }), HeadroomError::Metrics(metrics));
}

#[test]
fn refuses_updates_of_another_task() {
    let codec = Codec::new(QuantizationParams { metrics: 1, ..params(3, 32, 6, 100) }).unwrap();
    let good = Update { delta: vec![0.1; 3], examples: 1, metrics: vec![MetricValue { value: 1.0, count: 1 }] };
    let error = |change: &dyn Fn(&mut Update)| {
        let mut update = good.clone();
        change(&mut update);
        codec.encode(&update, &mut Constant(0)).unwrap_err()
    };
    assert!(codec.encode(&good, &mut Constant(0)).is_ok());
    assert_eq!(error(&|u| u.delta.truncate(2)), WrongLength { expected: 3, got: 2 }.into());
    assert_eq!(error(&|u| u.delta[1] = f32::NAN), EncodeError::NotFinite { index: 1 });
    assert_eq!(error(&|u| u.delta[2] = f32::NEG_INFINITY), EncodeError::NotFinite { index: 2 });
    assert_eq!(error(&|u| u.examples = 0), EncodeError::NoExamples);
    assert_eq!(error(&|u| u.metrics.clear()), EncodeError::MetricCount { expected: 1, got: 0 });
    assert_eq!(error(&|u| u.metrics[0].value = f64::NAN), EncodeError::MetricNotFinite { index: 0 });
}

#[test]
fn refuses_sums_that_no_cohort_has() {
    let codec = Codec::new(QuantizationParams { metrics: 1, ..params(2, 20, 6, 100) }).unwrap();
    let metrics = vec![MetricValue { value: 1.0, count: 10 }];
    let one = codec.encode(&Update { delta: vec![0.5, -0.5], examples: 3, metrics }, &mut Constant(0)).unwrap().words;
    let decode = |words: &[u32], bits, participants| {
        codec.decode(&ExactSum::new(words.to_vec(), bits, participants).unwrap().release_without_noise())
    };
    assert!(decode(&one, 20, 1).is_ok());
    let with = |index: usize, word: u32| {
        let mut words = one.clone();
        words[index] = word;
        decode(&words, 20, 1).unwrap_err()
    };
    assert_eq!(decode(&one, 21, 1), Err(DecodeError::ModulusBits { expected: 20, got: 21 }));
    assert_eq!(decode(&one[1..], 20, 1), Err(DecodeError::Length { expected: one.len(), got: one.len() - 1 }));
    assert_eq!(decode(&one, 20, 101), Err(DecodeError::Participants { got: 101, most: 100 }));
    // An empty sum has no mean, with any noise.
    let nobody = ExactSum::of_nobody(one.len(), 20).unwrap().release_without_noise();
    assert_eq!(codec.decode(&nobody), Err(DecodeError::Participants { got: 0, most: 100 }));
    assert_eq!(decode(&one, 20, 4), Err(DecodeError::Weight { weight: 3, participants: 4, most: 24 }));
    for (word, weight) in [(0, 0), (7, 7), ((1 << 20) - 1, -1)] {
        assert_eq!(with(2, word), DecodeError::Weight { weight, participants: 1, most: 6 });
    }
    assert_eq!(with(1, one[1] - 1), DecodeError::OutOfRange { index: 1 });
    assert_eq!(with(0, one[0] + 1), DecodeError::OutOfRange { index: 0 });
    assert_eq!(with(one.len() - 1, 1 << 19), DecodeError::Metric { index: 0 });
}
