//! Seconds to plan: composing 10,000 Poisson-subsampled Gaussians on a grid of 1e-4, and a Rényi curve.
#![expect(clippy::unwrap_used, reason = "a benchmark may stop at the first surprise")]

use criterion::{Criterion, criterion_group, criterion_main};
use learning::privacy::accountant::{LossPair, compose, poisson_gaussian, poisson_sampled};

fn accountants(c: &mut Criterion) {
    let mut group = c.benchmark_group("privacy_accountants");
    group.sample_size(10);
    for (q, z) in [(0.01, 1.1), (0.001, 0.8), (0.25, 1.5)] {
        group.bench_function(format!("pld/10000_rounds/q={q}/z={z}"), |b| {
            b.iter(|| {
                let pair = LossPair::poisson_gaussian(q, z).unwrap();
                compose(&[(&pair, 10_000)]).unwrap().epsilon(1e-5)
            });
        });
    }
    group.bench_function("rdp/poisson_gaussian", |b| b.iter(|| poisson_gaussian(0.01, 1.1).epsilon(1e-5)));
    group.bench_function("rdp/poisson_sampled", |b| {
        b.iter(|| poisson_sampled(0.01, |order| f64::from(order) / 2.42).epsilon(1e-5));
    });
    group.finish();
}

criterion_group!(benches, accountants);
criterion_main!(benches);
