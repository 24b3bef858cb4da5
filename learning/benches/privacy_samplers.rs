//! Nanoseconds per draw of the exact samplers, compared with opendp's sampler in the same run.
#![expect(clippy::unwrap_used, reason = "a benchmark may stop at the first surprise")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use dashu::rational::RBig;
use learning::privacy::{DiscreteGaussian, Sigma, Skellam, Variance};
use opendp::traits::samplers::sample_discrete_gaussian;
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;

const DRAWS: u64 = 1000;

fn samplers(c: &mut Criterion) {
    let mut group = c.benchmark_group("privacy_samplers");
    group.throughput(Throughput::Elements(DRAWS)).sample_size(20);
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    for sigma in [0.5, 4.5, 50.0, 1000.0, 100_000.0] {
        let gaussian = DiscreteGaussian::new(Sigma::at_least(sigma).unwrap());
        group.bench_function(format!("discrete_gaussian/{sigma}"), |b| {
            b.iter(|| (0..DRAWS).map(|_| gaussian.sample(&mut rng)).sum::<i64>());
        });
        let skellam = Skellam::new(Variance::at_least(sigma * sigma).unwrap());
        group.bench_function(format!("skellam/{sigma}"), |b| {
            b.iter(|| (0..DRAWS).map(|_| skellam.sample(&mut rng)).sum::<i64>());
        });
        group.bench_function(format!("opendp/{sigma}"), |b| {
            b.iter(|| {
                for _ in 0..DRAWS {
                    let scale = RBig::try_from(sigma).unwrap();
                    std::hint::black_box(sample_discrete_gaussian(scale).unwrap());
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, samplers);
criterion_main!(benches);
