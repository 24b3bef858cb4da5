//! Nanoseconds per parameter to encode one update and to decode a sum.
#![expect(clippy::unwrap_used, reason = "a benchmark may stop at the first surprise")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use learning::{Codec, ExactSum, QuantizationParams, Update};
use rand::SeedableRng;
use rand_chacha::{ChaCha8Rng, ChaCha20Rng};

const PARAMETERS: u32 = 1_000_000;

fn quantize(c: &mut Criterion) {
    let codec = Codec::new(QuantizationParams {
        parameters: PARAMETERS as usize,
        modulus_bits: 32,
        clip_range: 1.0,
        clip_norm: Some(10.0),
        max_weight: 1000,
        max_cohort: 500,
        metrics: 0,
    })
    .unwrap();
    let delta = (0..PARAMETERS).map(|i| (i % 2001) as f32 / 1000.0 - 1.0).collect();
    let update = Update { delta, examples: 100, metrics: vec![] };
    let mut group = c.benchmark_group("quantize");
    group.throughput(Throughput::Elements(u64::from(PARAMETERS))).sample_size(20);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    group.bench_function("encode/chacha8", |b| b.iter(|| codec.encode(&update, &mut rng).unwrap()));
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    group.bench_function("encode/chacha20", |b| b.iter(|| codec.encode(&update, &mut rng).unwrap()));
    let words = codec.encode(&update, &mut rng).unwrap().words;
    let sum = ExactSum::new(words, 32, 1).unwrap().release_without_noise();
    group.bench_function("decode", |b| b.iter(|| codec.decode(&sum).unwrap()));
    group.finish();
}

criterion_group!(benches, quantize);
criterion_main!(benches);
