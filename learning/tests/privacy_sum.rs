//! From updates to a noised mean through the public interface: exact sensitivity, headroom, unbiasedness, and the variance given to the
//! accountants.

use learning::Update;
use learning::privacy::accountant::SumNoise;
use learning::privacy::{
    DiscreteGaussian, ExactSum, NoiseSampler, NoiseShares, NoisedSum, PrivateCodec, PrivateCodecError,
    PrivateCodecParams, PrivateDecodeError, PrivateEncodeError, Sigma,
};
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;

const PARAMS: PrivateCodecParams = PrivateCodecParams {
    parameters: 500,
    modulus_bits: 32,
    max_cohort: 40,
    noise_multiplier: 1.0,
    noise_ceiling: 1.0,
    rotate: true,
    wrap_sigmas: None,
    count_noise: None,
    max_weight: 1,
    expected_cohort: 30.0,
    expected_weight: 1.0,
};
const SEED: [u8; 32] = [3; 32];

fn update(length: usize, size: f32, seed: u64) -> Update {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let delta = (0..length).map(|_| size * (rng.random::<f32>() - 0.5)).collect();
    Update { delta, examples: 7, metrics: vec![] }
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt()
}

fn lift(word: u32, bits: u8) -> i64 {
    let half = 1_i64 << (bits - 1);
    (i64::from(word) + half).rem_euclid(1 << bits) - half
}

fn add(sum: &mut [u32], words: &[u32], bits: u8) {
    let mask = u32::MAX >> (32 - u32::from(bits));
    sum.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word) & mask);
}

proptest! {
    #[test]
    fn no_participant_exceeds_the_sensitivity(
        length in 1_usize..3000,
        bits in 20_u8..=32,
        rotate: bool,
        count in proptest::option::of(2.0_f64..50.0),
        size in 1e-6_f32..1e6,
        clip in 1e-3_f64..1e3,
        z in 0.1_f64..3.0,
        seed: u64,
    ) {
        let params = PrivateCodecParams {
            parameters: length, modulus_bits: bits, rotate, count_noise: count, noise_multiplier: z,
            max_cohort: 4, expected_cohort: 3.0, ..PARAMS
        };
        let codec = PrivateCodec::new(params).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let words = codec.encode(&update(length, size, seed), clip, &SEED, &mut rng).unwrap().words;
        prop_assert_eq!(words.len(), codec.len());
        let square: i128 = words.iter().map(|&word| i128::from(lift(word, bits)).pow(2)).sum();
        let limit = codec.sensitivity() * codec.sensitivity();
        prop_assert!(square as f64 <= limit, "{square} {limit}");
        prop_assert!(codec.sigma().value() >= z * codec.sensitivity());
        // A full cohort of the longest updates and twelve standard deviations of noise do not wrap.
        let worst = 4.0 * codec.sensitivity() + 12.0 * codec.sigma().value();
        prop_assert!(worst < 2f64.powi(i32::from(bits) - 1), "{worst}");
    }
}

#[test]
fn the_mean_comes_back_with_a_fixed_denominator() {
    for (rotate, max_weight, share) in [(false, 1, 1.0), (true, 1, 1.0), (true, 10, 0.7)] {
        let codec =
            PrivateCodec::new(PrivateCodecParams { rotate, max_weight, expected_weight: share, ..PARAMS }).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut sum = vec![0; codec.len()];
        let mut expected = vec![0.0_f64; 500];
        let clip = 2.0;
        for seed in 0..30 {
            let update = update(500, 0.1 * (seed + 1) as f32, seed);
            let shrink = (clip / norm(&update.delta)).min(1.0) / 30.0;
            expected.iter_mut().zip(&update.delta).for_each(|(sum, v)| *sum += f64::from(*v) * shrink);
            add(&mut sum, &codec.encode(&update, clip, &SEED, &mut rng).unwrap().words, 32);
        }
        let sum = ExactSum::new(sum, 32, 30).unwrap().release_without_noise();
        let mean = codec.decode(&sum, clip, &SEED).unwrap();
        assert_eq!(mean.within_clip, None);
        // 7 of 10 examples, of 0.7 expected: the weights cancel.
        assert!(mean.delta.iter().zip(&expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5));
        assert!(codec.inflation() < 1.001, "{}", codec.inflation());
    }
}

/// 16 bits for four hundred updates of thirty thousand parameters: too few to be certain, enough with high probability.
#[test]
fn few_bits_are_enough_when_updates_are_rotated() {
    let tight = PrivateCodecParams {
        parameters: 30_000,
        modulus_bits: 16,
        max_cohort: 400,
        expected_cohort: 400.0,
        noise_multiplier: 0.5,
        noise_ceiling: 1.0,
        ..PARAMS
    };
    assert!(matches!(PrivateCodec::new(tight), Err(PrivateCodecError::Headroom { .. })));
    let codec = PrivateCodec::new(PrivateCodecParams { wrap_sigmas: Some(4.0), ..tight }).unwrap();
    let shares = NoiseShares::discrete_gaussian(codec.sigma().value(), 400, 0).unwrap();
    let sampler = NoiseSampler::new(shares.share);
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let (mut sum, mut expected) = (vec![0; codec.len()], vec![0.0_f64; 30_000]);
    for seed in 0..400 {
        let update = update(30_000, 1.0, seed);
        let mut words = codec.encode(&update, 1.0, &SEED, &mut rng).unwrap().words;
        sampler.add_to(&mut words, 16, &mut rng);
        add(&mut sum, &words, 16);
        let shrink = 1.0 / 400.0 / norm(&update.delta);
        expected.iter_mut().zip(&update.delta).for_each(|(sum, v)| *sum += f64::from(*v) * shrink);
    }
    let released = ExactSum::new(sum, 16, 400).unwrap().release_noised_by_participants(&shares).unwrap();
    let mean = codec.decode(&released, 1.0, &SEED).unwrap();
    let off = mean.delta.iter().zip(&expected).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>();
    // The noise alone would be off by z sqrt(d) / n times the inflation of rounding; the few that wrap add a little.
    let noise = (0.5 * codec.inflation()).powi(2) * 30_000.0 / 160_000.0;
    assert!(off > 0.9 * noise && off < 1.3 * noise, "{off} {noise}");
}

#[test]
fn central_noise_has_the_variance_of_the_ledger() {
    let codec = PrivateCodec::new(PrivateCodecParams { parameters: 20_000, ..PARAMS }).unwrap();
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let words = codec.encode(&update(20_000, 1.0, 1), 0.5, &SEED, &mut rng).unwrap().words;
    let exact = ExactSum::new(words.clone(), 32, 1).unwrap();
    let noised = exact.add_central_noise(&DiscreteGaussian::new(codec.sigma()), &mut rng);
    check_variance(&words, &noised, codec.sigma().value().powi(2));
}

#[test]
fn shares_of_survivors_have_the_variance_of_the_ledger() {
    for skellam in [false, true] {
        let codec = PrivateCodec::new(PrivateCodecParams { parameters: 9000, noise_ceiling: 1.5, ..PARAMS }).unwrap();
        let make = if skellam { NoiseShares::skellam } else { NoiseShares::discrete_gaussian };
        let shares = make(codec.sigma().value(), 21, 3).unwrap();
        let sampler = NoiseSampler::new(shares.share);
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        // Thirty are drawn, seven drop out: 23 survive.
        let (mut plain, mut noisy) = (vec![0; codec.len()], vec![0; codec.len()]);
        for seed in 0..23 {
            let mut words = codec.encode(&update(9000, 1.0, seed), 0.5, &SEED, &mut rng).unwrap().words;
            add(&mut plain, &words, 32);
            sampler.add_to(&mut words, 32, &mut rng);
            add(&mut noisy, &words, 32);
        }
        let released = ExactSum::new(noisy, 32, 23).unwrap().release_noised_by_participants(&shares).unwrap();
        let counted = shares.mechanism(23, codec.sensitivity(), codec.dimension()).unwrap();
        assert!(counted.sigma() >= codec.sigma().value());
        // The ledger assumes 20 of them; the actual noise is that of 23.
        check_variance(&plain, &released, counted.sigma().powi(2) * 23.0 / 20.0);
        assert!(codec.decode(&released, 0.5, &SEED).is_ok());
        assert!(matches!(counted.noise, SumNoise::Skellam { .. }) == skellam);
    }
}

/// Within 4.5 standard errors: half the noise or a missing share would be detected.
#[track_caller]
fn check_variance(exact: &[u32], noised: &NoisedSum, expected: f64) {
    let n = exact.len() as f64;
    let residual = |(exact, noised): (&u32, &u32)| lift(noised.wrapping_sub(*exact), 32) as f64;
    let variance = exact.iter().zip(noised.words()).map(residual).map(|x| x * x).sum::<f64>() / n;
    let z = (variance / expected - 1.0) / (2.0 / n).sqrt();
    assert!(z.abs() < 4.5, "{variance} where {expected} is expected: {z:.1} standard errors");
}

#[test]
fn the_count_within_the_clip_comes_back() {
    let params = PrivateCodecParams { count_noise: Some(1.5), ..PARAMS };
    let codec = PrivateCodec::new(params).unwrap();
    let plain = PrivateCodec::new(PARAMS).unwrap();
    // z as one Gaussian: 1/z^2 = 1/z_update^2 + 1/(2 sigma_b)^2.
    let z_update =
        codec.sigma().value() / plain.sensitivity() * (plain.sensitivity() / codec.sensitivity()) * codec.inflation();
    assert!((1.0 / z_update.powi(2) - (1.0 - 1.0 / 9.0)).abs() < 1e-3, "{z_update}");
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let mut sum = vec![0; codec.len()];
    for seed in 0..30 {
        let size = if seed < 18 { 0.01 } else { 1.0 };
        add(&mut sum, &codec.encode(&update(500, size, seed), 1.0, &SEED, &mut rng).unwrap().words, 32);
    }
    let sum = ExactSum::new(sum, 32, 30).unwrap().release_without_noise();
    let within = codec.decode(&sum, 1.0, &SEED).unwrap().within_clip.unwrap();
    assert!((within - 0.6).abs() < 1e-9, "{within}");
}

#[test]
fn refuses_parameters_that_cannot_work() {
    let error = |params| PrivateCodec::new(params).unwrap_err();
    let range = |params, name| {
        let error = error(params);
        assert!(error.to_string().contains(name), "{error}");
    };
    range(PrivateCodecParams { parameters: 0, ..PARAMS }, "parameters");
    range(PrivateCodecParams { modulus_bits: 33, ..PARAMS }, "modulus_bits");
    range(PrivateCodecParams { max_cohort: 0, ..PARAMS }, "max_cohort");
    range(PrivateCodecParams { noise_multiplier: 0.0, ..PARAMS }, "noise_multiplier");
    range(PrivateCodecParams { noise_multiplier: f64::NAN, ..PARAMS }, "noise_multiplier");
    range(PrivateCodecParams { noise_ceiling: 0.9, ..PARAMS }, "noise_ceiling");
    range(PrivateCodecParams { max_weight: 0, ..PARAMS }, "max_weight");
    range(PrivateCodecParams { expected_cohort: 41.0, ..PARAMS }, "expected_cohort");
    range(PrivateCodecParams { expected_weight: 0.0, ..PARAMS }, "expected_weight");
    range(PrivateCodecParams { count_noise: Some(0.5), ..PARAMS }, "adaptive clip");
    let tight = PrivateCodecParams {
        modulus_bits: 16,
        max_cohort: 1000,
        parameters: 100_000,
        expected_cohort: 900.0,
        ..PARAMS
    };
    let error = error(tight);
    assert!(matches!(error, PrivateCodecError::Headroom { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("modulus_bits 19") && text.contains("cohort of at most 125"), "{text}");
    assert!(PrivateCodec::new(PrivateCodecParams { modulus_bits: 19, ..tight }).is_ok());
    assert!(PrivateCodec::new(PrivateCodecParams { max_cohort: 125, expected_cohort: 50.0, ..tight }).is_ok());
}

#[test]
fn refuses_what_is_no_update_and_no_sum() {
    let codec = PrivateCodec::new(PARAMS).unwrap();
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let mut bad = update(500, 1.0, 1);
    bad.delta[77] = f32::NAN;
    let refused =
        |update: &Update, clip: f64| codec.encode(update, clip, &SEED, &mut ChaCha20Rng::seed_from_u64(1)).unwrap_err();
    assert_eq!(refused(&bad, 1.0), PrivateEncodeError::NotFinite { index: 77 });
    let good = update(500, 1.0, 1);
    for clip in [0.0, -1.0, f64::INFINITY] {
        assert_eq!(refused(&good, clip), PrivateEncodeError::Clip(clip));
    }
    assert!(matches!(refused(&good, f64::NAN), PrivateEncodeError::Clip(_)));
    assert_eq!(refused(&update(499, 1.0, 1), 1.0), PrivateEncodeError::WrongLength { expected: 500, got: 499 });
    assert_eq!(refused(&Update { examples: 0, ..good.clone() }, 1.0), PrivateEncodeError::NoExamples);

    let words = codec.encode(&good, 1.0, &SEED, &mut rng).unwrap().words;
    let decode = |words: Vec<u32>, bits, participants| {
        let sum = ExactSum::new(words, bits, participants).unwrap().release_without_noise();
        codec.decode(&sum, 1.0, &SEED)
    };
    assert!(decode(words.clone(), 32, 1).is_ok());
    assert!(matches!(decode(words[1..].to_vec(), 32, 1), Err(PrivateDecodeError::Shape { .. })));
    assert!(matches!(decode(vec![0; words.len()], 31, 1), Err(PrivateDecodeError::Shape { .. })));
    assert_eq!(decode(words.clone(), 32, 41), Err(PrivateDecodeError::Participants { got: 41, most: 40 }));
    // More than one update and its noise add up to, and less than forty do.
    let mut much = words.clone();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number far below 2^32")]
    let twenty_updates = (20.0 * codec.sensitivity()) as u32;
    much[5] = twenty_updates;
    assert!(matches!(decode(much.clone(), 32, 1), Err(PrivateDecodeError::OutOfRange { index: 5, participants: 1 })));
    let secret = codec.with_secret_count();
    for participants in [1, 40] {
        let released = |words: &[u32]| ExactSum::new(words.to_vec(), 32, participants).unwrap().release_without_noise();
        assert!(secret.decode(&released(&much), 1.0, &SEED).is_ok(), "it does not depend on how many there were");
        let mut wild = words.clone();
        wild[5] = 1 << 31;
        assert!(secret.decode(&released(&wild), 1.0, &SEED).is_err());
    }
    let mut wild = words;
    wild[5] = 1 << 31;
    assert_eq!(decode(wild, 32, 1), Err(PrivateDecodeError::OutOfRange { index: 5, participants: 1 }));
}

#[test]
fn a_sigma_too_small_to_draw_is_named() {
    assert!(Sigma::at_least(0.001).unwrap_err().to_string().contains("0.001"));
}
