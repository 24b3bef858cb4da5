//! Seconds to plan: composing 10,000 Poisson-subsampled Gaussians on a grid of 1e-4, and a Rényi curve.
#![expect(clippy::unwrap_used, reason = "a benchmark may stop at the first surprise")]

use criterion::{Criterion, criterion_group, criterion_main};
use learning::privacy::accountant::{LossPair, SumMechanism, SumNoise, compose, poisson_gaussian, poisson_sampled};
use learning::privacy::{Budget, Ledger, Release, Sampled, SealedRow};
use task_spec::{PrivacyAccounting, PrivacyMechanism, PrivacyView};

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
    let rows = ledger(&[]).1;
    group.bench_function("ledger/open/10000_rows", |b| b.iter(|| ledger(&rows).0.spent()));
    group.finish();
}

/// A ledger of the rows; if `rows` is empty, of 10,000 rows of a central mechanism.
fn ledger(rows: &[SealedRow]) -> (Ledger, Vec<SealedRow>) {
    let budget =
        Budget { epsilon: None, delta: 1e-5, against: PrivacyView::Published, accounting: PrivacyAccounting::General };
    let sealer = |_: &[u8]| [0; 32];
    let mut ledger = Ledger::open(PrivacyMechanism::CentralGaussian, budget, rows.to_vec(), &sealer).unwrap();
    for round in rows.len() as u64..10_000 {
        let noise = SumNoise::DiscreteGaussian { sigma: 2e6 };
        let sum = SumMechanism { noise, sensitivity: 1e6, dimension: 7850 };
        let sampled = Sampled::Poisson { rate: 0.01 };
        let mechanism = PrivacyMechanism::CentralGaussian;
        let release = Release {
            round,
            attempt: 0,
            mechanism,
            sum,
            sampled,
            participants: 50,
            tree_release: None,
            bands: None,
            participations: None,
        };
        ledger.charge(release, &sealer).unwrap();
    }
    let rows = ledger.rows().to_vec();
    (ledger, rows)
}

criterion_group!(benches, accountants);
criterion_main!(benches);
