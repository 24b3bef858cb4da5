//! Properties shared by all codecs.

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use task_spec::Compression;

use super::*;
use crate::ExactSum;
use crate::metrics::MAX_METRICS;
use crate::metrics::MetricValue;
use crate::parameters::TensorSpec;
use crate::quantize::HeadroomError;

const SEED: [u8; 32] = [7; 32];

fn layout(shapes: &[&[u64]]) -> Layout {
    let spec = |(i, shape): (usize, &&[u64])| TensorSpec { name: format!("t{i}"), shape: shape.to_vec() };
    Layout::new(shapes.iter().enumerate().map(spec).collect()).unwrap()
}

fn small() -> Layout {
    layout(&[&[12, 40], &[12], &[3, 12], &[3]])
}

fn params(layout: &Layout, max_cohort: u32) -> QuantizationParams {
    QuantizationParams {
        parameters: layout.len(),
        modulus_bits: 32,
        clip_range: 1.0,
        clip_norm: Some(4.0),
        max_weight: 50,
        max_cohort,
        metrics: 1,
    }
}

fn all(k: u64) -> Vec<Compression> {
    let mut all = vec![Compression::Int8 {}];
    for keep in [0.4, 1.0] {
        all.extend([1, 2, 8].map(|bits| Compression::Rotated { bits, keep }));
    }
    for error_feedback in [false, true] {
        all.push(Compression::RandomK { k, bits: 10, error_feedback });
        all.push(Compression::LowRank { rank: 4, bits: 10, error_feedback });
        all.push(Compression::TopK { k, error_feedback });
    }
    all
}

/// Updates as training produces them: a common part and an individual part, of different size in each tensor.
fn updates(layout: &Layout, count: u64, norm: f64, seed: u64) -> Vec<Update> {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let mut normal = || (0..12).map(|_| f64::from(rng.next_u32()) / 4_294_967_296.0).sum::<f64>() - 6.0;
    let size =
        |at: usize| layout.tensors().len() - (0..layout.tensors().len()).filter(|&t| at < layout.range(t).end).count();
    let common: Vec<f64> = (0..layout.len()).map(|at| normal() * (1.0 + size(at) as f64)).collect();
    let draw = |i: u64| {
        let delta: Vec<f64> = common.iter().enumerate().map(|(at, c)| c + normal() * (1.0 + size(at) as f64)).collect();
        let length = delta.iter().map(|v| v * v).sum::<f64>().sqrt();
        let metrics = vec![MetricValue { value: 0.25 * i as f64, count: 4 }];
        #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
        let delta = delta.iter().map(|v| (v * norm / length) as f32).collect();
        Update { delta, examples: 40 + i, metrics }
    };
    (0..count).map(draw).collect()
}

fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

/// The words added by the coordinator for an upload.
fn words(codec: &WeightedCodec, upload: &Upload) -> Vec<u32> {
    match upload {
        Upload::Words(update) => {
            assert!(codec.is_summable());
            let mut inspector = codec.inspector().unwrap();
            update.words.iter().for_each(|&word| inspector.push(word));
            assert_eq!(inspector.finish(), Ok(()));
            update.words.clone()
        }
        Upload::Bytes(CompactUpdate(bytes)) => {
            assert!(!codec.is_summable() && codec.inspector().is_none());
            assert_eq!(bytes.len(), codec.upload_bytes());
            codec.expand(bytes).unwrap()
        }
    }
}

fn sum(codec: &WeightedCodec, all: &[Vec<u32>]) -> NoisedSum {
    let mask = u32::MAX >> (32 - u32::from(codec.modulus_bits()));
    let mut sum = vec![0_u32; codec.len()];
    for words in all {
        assert_eq!(words.len(), codec.len());
        sum.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word) & mask);
    }
    ExactSum::new(sum, codec.modulus_bits(), u32::try_from(all.len()).unwrap()).unwrap().release_without_noise()
}

fn decode(codec: &WeightedCodec, all: &[Vec<u32>]) -> Decoded {
    codec.decode(&sum(codec, all), &SEED).unwrap()
}

fn relative(a: &[f32], b: &[f64]) -> f64 {
    let error: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum();
    (error / b.iter().map(|b| b * b).sum::<f64>()).sqrt()
}

fn weighted_mean(updates: &[Update]) -> Vec<f64> {
    let weights: Vec<f64> = updates.iter().map(|u| u.examples.min(50) as f64).collect();
    let total: f64 = weights.iter().sum();
    let value = |i: usize| updates.iter().zip(&weights).map(|(u, w)| f64::from(u.delta[i]) * w).sum::<f64>() / total;
    (0..updates[0].delta.len()).map(value).collect()
}

#[test]
fn a_sum_decodes_to_the_weighted_mean_of_what_each_decodes_to() {
    let layout = small();
    for spec in all(60) {
        let codec = WeightedCodec::new(Some(&spec), &layout, params(&layout, 12)).unwrap();
        let updates = updates(&layout, 12, 1.5, 1);
        let inputs: Vec<Vec<u32>> = updates
            .iter()
            .zip(0..)
            .map(|(update, i)| words(&codec, &codec.encode(update, None, &SEED, &mut rng(i)).unwrap().upload))
            .collect();
        let Decoded { mean, distortion } = decode(&codec, &inputs);
        let weights: Vec<u64> = updates.iter().map(|update| update.examples.min(50)).collect();
        assert_eq!((mean.weight, mean.participants), (weights.iter().sum(), 12));
        let count = 12 * 4;
        assert_eq!(mean.metrics, [MetricValue { value: 0.25 * 5.5, count }], "{spec:?}");

        let mut expected = vec![0.0; layout.len()];
        let mut errors = 0.0;
        for ((words, weight), update) in inputs.iter().zip(&weights).zip(&updates) {
            let one = decode(&codec, std::slice::from_ref(words));
            let share = *weight as f64 / mean.weight as f64;
            expected.iter_mut().zip(&one.mean.delta).for_each(|(sum, v)| *sum += f64::from(*v) * share);
            let delta: Vec<f64> = update.delta.iter().map(|&v| f64::from(v)).collect();
            let error = relative(&one.mean.delta, &delta);
            let measured = one.distortion.unwrap();
            assert!((measured.norm - 1.5).abs() < 1e-4, "{measured:?}");
            assert!((measured.added_error - error).abs() < 1e-3 * error + 1e-4, "{spec:?}: {measured:?}, {error}");
            errors += error / 12.0;
        }
        assert!(relative(&mean.delta, &expected) < 1e-6, "{spec:?}");
        assert!((distortion.unwrap().added_error - errors).abs() < 1e-3 * errors + 1e-4);

        // Any order, the same bits.
        let turned: Vec<Vec<u32>> = inputs.iter().rev().cloned().collect();
        assert_eq!(sum(&codec, &inputs).to_bytes(), sum(&codec, &turned).to_bytes());
        // The bound announced to sessions holds.
        let bits = codec.modulus_bits();
        let largest = inputs.iter().flatten().map(|&word| crate::quantize::lift(word, bits).unsigned_abs()).max();
        assert!(largest.unwrap() <= codec.input_bound() && 12 * codec.input_bound() < 1 << (bits - 1), "{spec:?}");
    }
}

#[test]
fn without_error_feedback_the_summable_ones_and_int8_are_unbiased() {
    let layout = small();
    // Well within the range, so nothing is clamped.
    let update = &updates(&layout, 1, 0.5, 2)[0];
    let specs = [
        Compression::Int8 {},
        Compression::Rotated { bits: 1, keep: 1.0 },
        Compression::Rotated { bits: 3, keep: 0.3 },
        Compression::RandomK { k: 100, bits: 12, error_feedback: false },
        Compression::LowRank { rank: 5, bits: 12, error_feedback: false },
    ];
    let rounds = 2000_u64;
    for spec in specs {
        let codec = WeightedCodec::new(Some(&spec), &layout, params(&layout, 12)).unwrap();
        let mut mean = vec![0.0_f64; layout.len()];
        let mut square = 0.0;
        for round in 0..rounds {
            let mut seed = [0; 32];
            seed[..8].copy_from_slice(&round.to_le_bytes());
            let upload = codec.encode(update, None, &seed, &mut rng(round)).unwrap().upload;
            let one = codec.decode(&sum(&codec, &[words(&codec, &upload)]), &seed).unwrap().mean.delta;
            mean.iter_mut().zip(&one).for_each(|(sum, v)| *sum += f64::from(*v) / rounds as f64);
            square += one.iter().zip(&update.delta).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>() / rounds as f64;
        }
        let error: f64 = mean.iter().zip(&update.delta).map(|(a, b)| (a - f64::from(*b)).powi(2)).sum();
        // The mean of n draws has an n-th of the variance; the sum over the coordinates is close to that.
        let expected = square / rounds as f64;
        assert!((0.7 * expected..1.3 * expected).contains(&error), "{spec:?}: {error}, {expected}");
    }
}

#[test]
fn error_feedback_loses_nothing_and_sends_everything_in_the_end() {
    let layout = small();
    // Small enough that the residual stays within the range.
    let update = &updates(&layout, 1, 0.1, 3)[0];
    for spec in all(60) {
        let codec = WeightedCodec::new(Some(&spec), &layout, params(&layout, 12)).unwrap();
        let mut residual: Option<Residual> = None;
        let mut total = vec![0.0_f64; layout.len()];
        for round in 0..60_u8 {
            let seed = [round; 32];
            let encoded = codec.encode(update, residual.as_ref(), &seed, &mut rng(round.into())).unwrap();
            let one = codec.decode(&sum(&codec, &[words(&codec, &encoded.upload)]), &seed).unwrap().mean.delta;
            assert_eq!(encoded.residual.is_some(), codec.keeps_residual());
            let Some(left) = encoded.residual else { break };
            for (i, &sent) in one.iter().enumerate() {
                let before = residual.as_ref().map_or(0.0, |residual| f64::from(residual.values()[i]));
                let (had, has) = (f64::from(update.delta[i]) + before, f64::from(sent) + f64::from(left.values()[i]));
                assert!((had - has).abs() < 1e-6, "{spec:?}, round {round}, value {i}: {had} {has}");
                total[i] += f64::from(sent) / 60.0;
            }
            // Through the journal.
            residual = Some(Residual::from_record(&left.to_record(), layout.len()).unwrap());
        }
        if residual.is_some() {
            let error = relative(&update.delta, &total);
            assert!(error < 0.35, "{spec:?}: {error}");
        }
    }
}

#[test]
fn norms_and_ranges_are_clipped_and_weights_capped() {
    let layout = small();
    let mut update = updates(&layout, 1, 1.0, 4).remove(0);
    update.delta.iter_mut().for_each(|v| *v *= 400.0);
    update.examples = 1_000_000;
    for spec in all(60) {
        let codec = WeightedCodec::new(Some(&spec), &layout, params(&layout, 12)).unwrap();
        let encoded = codec.encode(&update, None, &SEED, &mut rng(1)).unwrap();
        let one = decode(&codec, &[words(&codec, &encoded.upload)]);
        assert_eq!(one.mean.weight, 50);
        assert!((one.distortion.unwrap().norm - 4.0).abs() < 1e-4);
    }
}

#[test]
fn what_is_no_update_is_not_encoded() {
    let layout = small();
    for spec in all(60) {
        let codec = WeightedCodec::new(Some(&spec), &layout, params(&layout, 12)).unwrap();
        let good = updates(&layout, 1, 1.0, 5).remove(0);
        let error = |change: &dyn Fn(&mut Update)| {
            let mut update = good.clone();
            change(&mut update);
            codec.encode(&update, None, &SEED, &mut rng(1)).unwrap_err()
        };
        assert_eq!(error(&|u| u.delta[3] = f32::NAN), EncodeError::NotFinite { index: 3 });
        assert_eq!(error(&|u| u.examples = 0), EncodeError::NoExamples);
        assert_eq!(error(&|u| u.metrics.clear()), EncodeError::MetricCount { expected: 1, got: 0 });
        assert_eq!(error(&|u| u.metrics[0].value = f64::NAN), EncodeError::MetricNotFinite { index: 0 });
        assert!(matches!(error(&|u| u.delta.truncate(5)), EncodeError::WrongLength(_)));
        let other = Residual::between(&[1.0], &[0.0]);
        let refused = codec.encode(&good, Some(&other), &SEED, &mut rng(1));
        assert_eq!(refused.is_err(), codec.keeps_residual());
    }
}

#[test]
fn codecs_that_do_not_fit_are_refused_with_the_reason() {
    let layout = small();
    let error = |spec: Compression, params: QuantizationParams| {
        WeightedCodec::new(Some(&spec), &layout, params).unwrap_err().to_string()
    };
    let good = params(&layout, 12);
    let top_k = |k| Compression::TopK { k, error_feedback: true };
    let random_k = |k, bits| Compression::RandomK { k, bits, error_feedback: false };
    let says = "k must be 1 to 531, the parameters of the model, not ";
    assert_eq!(error(top_k(532), good), format!("{says}532"));
    assert_eq!(error(random_k(u64::MAX, 8), good), format!("{says}{}", u64::MAX));
    assert_eq!(error(top_k(0), good), format!("{says}0"));
    assert_eq!(error(random_k(9, 17), good), "bits must be 1 to 16, not 17");
    let rotated = Compression::Rotated { bits: 2, keep: 1.0 };
    assert!(error(rotated, QuantizationParams { clip_norm: None, ..good }).contains("needs clip_norm"));
    let crowded = QuantizationParams { max_cohort: 65_536, ..good };
    assert!(error(random_k(9, 16), crowded).ends_with("at most 15 bits would do"));
    let low_rank = Compression::LowRank { rank: 40, bits: 8, error_feedback: false };
    assert!(error(low_rank, good).contains("rank 40 is not below the longer side of any matrix"));
    for spec in all(60) {
        let bad = |params: QuantizationParams| {
            matches!(WeightedCodec::new(Some(&spec), &layout, params), Err(CodecError::Headroom(_)))
        };
        assert!(bad(QuantizationParams { max_weight: 0, ..good }));
        assert!(bad(QuantizationParams { max_cohort: 0, ..good }));
        assert!(bad(QuantizationParams { clip_range: 0.0, ..good }));
        assert!(bad(QuantizationParams { metrics: MAX_METRICS + 1, ..good }));
        let shorter = QuantizationParams { parameters: 530, ..good };
        assert!(matches!(WeightedCodec::new(Some(&spec), &layout, shorter), Err(CodecError::WrongLength(_))));
    }
    let dense =
        WeightedCodec::new(Some(&Compression::Int8 {}), &layout, QuantizationParams { modulus_bits: 16, ..good });
    assert!(matches!(dense, Err(CodecError::Headroom(HeadroomError::TooFewLevels { .. }))));
}

#[test]
fn the_plain_codec_is_the_same_as_ever() {
    let layout = small();
    let codec = WeightedCodec::new(None, &layout, params(&layout, 12)).unwrap();
    let plain = Codec::new(params(&layout, 12)).unwrap();
    assert_eq!((codec.len(), codec.modulus_bits(), codec.input_bound()), (plain.len(), 32, plain.input_bound()));
    assert_eq!(codec.upload_bytes(), 4 * plain.len());
    let update = &updates(&layout, 1, 1.0, 6)[0];
    let encoded = codec.encode(update, None, &SEED, &mut rng(1)).unwrap();
    assert_eq!(encoded.upload, Upload::Words(plain.encode(update, &mut rng(1)).unwrap()));
    let decoded = decode(&codec, &[words(&codec, &encoded.upload)]);
    assert_eq!(decoded.distortion, None);
    assert_eq!((codec.expand(&[0; 10]), codec.plain()), (Err(UploadError::Summable), Some(&plain)));
}

fn garbage() -> impl Strategy<Value = (usize, Vec<(usize, u8)>, usize)> {
    (0_usize..15, proptest::collection::vec((any::<usize>(), any::<u8>()), 0..8), any::<usize>())
}

proptest! {
    /// Truncated or changed bytes and words are rejected or harmless.
    #[test]
    fn garbage_is_refused_or_harmless((which, changes, cut) in garbage(), noise in any::<u64>()) {
        let layout = small();
        let spec = all(60)[which % all(60).len()];
        let codec = WeightedCodec::new(Some(&spec), &layout, params(&layout, 12)).unwrap();
        let update = &updates(&layout, 1, 1.0, noise)[0];
        match codec.encode(update, None, &SEED, &mut rng(noise)).unwrap().upload {
            Upload::Bytes(CompactUpdate(mut bytes)) => {
                let length = bytes.len();
                for (at, byte) in changes {
                    bytes[at % length] = byte;
                }
                let expanded = codec.expand(&bytes);
                prop_assert_eq!(codec.check(&bytes).err(), expanded.as_ref().err().copied());
                if let Ok(words) = expanded {
                    // Any accepted contribution is within a participant's bounds.
                    prop_assert!(codec.decode(&sum(&codec, &[words]), &SEED).is_ok());
                }
                let cut = cut % (length + 8);
                bytes.resize(cut, 0);
                let refused = matches!(codec.expand(&bytes), Err(UploadError::Length { .. }));
                prop_assert!(cut == length || refused);
            }
            Upload::Words(update) => {
                let mut words = update.words;
                let mask = u32::MAX >> (32 - u32::from(codec.modulus_bits()));
                let length = words.len();
                for (at, byte) in changes {
                    words[at % length] ^= u32::from(byte).rotate_left(u32::try_from(at % 32).unwrap()) & mask;
                }
                let mut inspector = codec.inspector().unwrap();
                words.iter().for_each(|&word| inspector.push(word));
                let plausible = inspector.finish().is_ok();
                prop_assert!(!plausible || codec.decode(&sum(&codec, &[words]), &SEED).is_ok());
            }
        }
    }
}

/// Cost and error of the codecs for two models of realistic shape, in a cohort of ten whose updates share half of their
/// energy: upload ratio, and error of one update and of the mean. `--nocapture` prints the table.
#[test]
fn ratios_and_errors_are_as_documented() {
    let linear = layout(&[&[10, 784], &[10]]);
    let mlp = layout(&[&[200, 784], &[200], &[10, 200], &[10]]);
    let low_rank = |rank| Compression::LowRank { rank, bits: 12, error_feedback: true };
    for (layout, rank) in [(&linear, 16), (&mlp, 16)] {
        let d = layout.len() as u64;
        let cases = [
            (None, 0.999, 0.0),
            (Some(Compression::Rotated { bits: 1, keep: 1.0 }), 8.5, 1.36),
            (Some(Compression::Rotated { bits: 2, keep: 0.75 }), 8.0, 0.807),
            (Some(Compression::Rotated { bits: 4, keep: 1.0 }), 4.0, 0.134),
            // One coordinate in four, scaled by four: √(4 − 1).
            (Some(Compression::RandomK { k: d / 4, bits: 12, error_feedback: false }), 7.5, 1.73),
            // One in eight, as it is: √(1 − 1/8).
            (Some(Compression::RandomK { k: d / 8, bits: 12, error_feedback: true }), 15.0, 0.935),
            (Some(low_rank(rank)), 30.0, 0.987),
            (Some(Compression::TopK { k: d / 50, error_feedback: true }), 80.0, 0.869),
            (Some(Compression::Int8 {}), 3.9, 0.0057),
        ];
        for (spec, ratio, expected) in cases {
            let params = QuantizationParams { clip_norm: Some(1.5), max_weight: 50, ..params(layout, 10) };
            let codec = WeightedCodec::new(spec.as_ref(), layout, params).unwrap();
            let updates = updates(layout, 10, 1.0, 8);
            let inputs: Vec<Vec<u32>> = updates
                .iter()
                .zip(0..)
                .map(|(u, i)| words(&codec, &codec.encode(u, None, &SEED, &mut rng(i)).unwrap().upload))
                .collect();
            let Decoded { mean, distortion } = decode(&codec, &inputs);
            let error = relative(&mean.delta, &weighted_mean(&updates));
            let one = distortion.map_or(0.0, |distortion| distortion.added_error);
            println!("{d:7} {:6.2} x  one {one:.4}  mean {error:.4}  {spec:?}", codec.ratio());
            if (spec, d) != (Some(low_rank(rank)), 7850) {
                assert!(codec.ratio() >= ratio, "{spec:?}: {}", codec.ratio());
            }
            assert!((error - expected).abs() <= 0.05 * expected + 1e-4, "{spec:?}: {error}, not {expected}");
        }
    }
}
