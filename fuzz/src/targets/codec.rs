//! Untrusted compressed uploads: an admitted upload expands, sums and decodes to numbers in range.
//!
//! The first byte selects the codec; the rest is an upload to expand, or the words of a summable one.

use learning::compress::{CompactUpdate, Residual, Upload, WeightedCodec};
use learning::parameters::{Layout, TensorSpec};
use learning::privacy::ExactSum;
use learning::quantize::QuantizationParams;
use learning::update::Update;
use task_spec::Compression;

const SEED: [u8; 32] = [7; 32];

const SPECS: [Compression; 5] = [
    Compression::TopK { k: 9, error_feedback: true },
    Compression::Int8 {},
    Compression::Rotated { bits: 2, keep: 0.75 },
    Compression::RandomK { k: 13, bits: 5, error_feedback: true },
    Compression::LowRank { rank: 2, bits: 4, error_feedback: true },
];

fn codec(spec: &Compression) -> WeightedCodec {
    let tensor = |(index, shape): (usize, Vec<u64>)| TensorSpec { name: format!("t{index}"), shape };
    let layout = Layout::new([vec![5, 6], vec![5], vec![3]].into_iter().enumerate().map(tensor).collect());
    let params = QuantizationParams {
        parameters: 38,
        modulus_bits: 28,
        clip_range: 1.5,
        clip_norm: Some(2.0),
        max_weight: 3,
        max_cohort: 8,
        metrics: 1,
    };
    WeightedCodec::new(Some(spec), &layout.expect("three tensors"), params).expect("parameters that leave headroom")
}

pub fn run(data: &[u8]) {
    let Some((&chosen, bytes)) = data.split_first() else { return };
    let codec = codec(&SPECS[usize::from(chosen) % SPECS.len()]);
    if let Ok(residual) = Residual::from_record(bytes, 38) {
        assert!(residual.values().iter().all(|value| value.is_finite()));
        assert_eq!(&residual.to_record()[..], bytes, "a residual has one form");
    }
    let words = if codec.is_summable() { summable(&codec, bytes) } else { expanded(&codec, bytes) };
    let Some(words) = words else { return };
    // The sum of a single upload decodes to an update, or is rejected as a whole.
    let sum = ExactSum::new(words, codec.modulus_bits(), 1).expect("words below the modulus").release_without_noise();
    let decoded = codec.decode(&sum, &SEED).expect("what is admitted decodes");
    assert!(decoded.mean.delta.iter().all(|value| value.is_finite()), "{decoded:?}");
    assert!((1..=3).contains(&decoded.mean.weight), "{decoded:?}");
}

fn expanded(codec: &WeightedCodec, bytes: &[u8]) -> Option<Vec<u32>> {
    let expanded = codec.expand(bytes);
    assert_eq!(codec.check(bytes).err(), expanded.as_ref().err().copied(), "one judgement, with and without the words");
    let words = expanded.ok()?;
    assert!(bytes.len() == codec.upload_bytes() && words.len() == codec.len());
    Some(words)
}

fn summable(codec: &WeightedCodec, bytes: &[u8]) -> Option<Vec<u32>> {
    let mask = u32::MAX >> (32 - u32::from(codec.modulus_bits()));
    let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word) & mask).collect();
    let mut inspector = codec.inspector()?;
    words.iter().for_each(|&word| inspector.push(word));
    let is_admitted = words.len() == codec.len() && inspector.finish().is_ok();
    is_admitted.then_some(words)
}

/// An honest upload of each codec.
pub fn seeds() -> Vec<Vec<u8>> {
    let delta: Vec<f32> = (0..38_u8).map(|index| f32::from(index % 7) / 10.0 - 0.3).collect();
    let update = Update { delta, examples: 2, metrics: vec![learning::metrics::MetricValue { value: 0.5, count: 2 }] };
    let upload = |(chosen, spec): (u8, &Compression)| {
        let encoded = codec(spec).encode(&update, None, &SEED, &mut super::support::rng(3)).expect("an update");
        let bytes = match encoded.upload {
            Upload::Bytes(CompactUpdate(bytes)) => bytes,
            Upload::Words(update) => update.words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        };
        [vec![chosen], bytes].concat()
    };
    (0..).zip(&SPECS).map(upload).collect()
}
