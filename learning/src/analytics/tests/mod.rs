//! Whole analyses: many participants, words modulo 2^b, their sum, the next state as bytes, and again.

mod biostatistics;
mod evaluation;
mod figures;
mod k_means;
mod private;
mod statistics;
mod trees;

use rand::{Rng, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::metrics::MetricValue;
use crate::privacy::ExactSum;

fn random(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// In [0, 1).
fn unit(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0
}

/// Box and Muller.
fn normal(rng: &mut impl Rng) -> f64 {
    let (a, b) = (1.0 - unit(rng), unit(rng));
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

/// The rows of a table in consecutive runs for `participants`. Sorted rows give heterogeneous data.
fn deal(table: &Table, participants: usize) -> Vec<Table> {
    let ends: Vec<usize> = (0..=participants).map(|i| i * table.rows() / participants).collect();
    let part = |ends: &[usize]| {
        let values = (ends[0]..ends[1]).flat_map(|row| table.row(row).to_vec()).collect();
        let part = Table::new(table.width(), values).unwrap();
        if table.targets().is_empty() {
            part
        } else {
            part.with_targets(table.targets()[ends[0]..ends[1]].to_vec()).unwrap()
        }
    };
    ends.windows(2).map(part).collect()
}

/// One round on the road every update takes.
fn round(analysis: &Analysis, state: &AnalyticsState, tables: &[Table]) -> Advanced<AnalyticsState> {
    let codec = analysis.codec();
    let mask = u32::MAX >> (32 - u32::from(codec.modulus_bits()));
    let mut sum = vec![0_u32; codec.len()];
    for table in tables {
        let words = codec.encode(&analysis.contribution(state, table).unwrap()).unwrap();
        assert_eq!(words.len(), codec.len());
        for (sum, word) in sum.iter_mut().zip(words) {
            *sum = sum.wrapping_add(word) & mask;
        }
    }
    let participants = u32::try_from(tables.len()).unwrap();
    let sum = ExactSum::new(sum, codec.modulus_bits(), participants).unwrap().release_without_noise();
    let advanced = analysis.advance(state, &sum).unwrap();
    // The published result can be read back unchanged.
    assert_eq!(analysis.read(&advanced.state.to_bytes().unwrap()).unwrap(), advanced.state);
    advanced
}

/// To the end.
fn run(analysis: &Analysis, tables: &[Table]) -> AnalyticsState {
    let mut state = analysis.initial();
    for _ in 0..analysis.rounds() {
        state = round(analysis, &state, tables).state;
    }
    assert_eq!(analysis.contribution(&state, &tables[0]).unwrap_err(), AnalyticsError::Done(analysis.rounds()));
    state
}

fn column(name: &str, low: f64, high: f64, repeat: u32) -> ColumnSpec {
    ColumnSpec { name: name.to_owned(), low, high, repeat }
}

/// The error for a specification written as JSON.
fn refusal(spec: serde_json::Value, modulus_bits: u8, max_cohort: u32) -> String {
    match serde_json::from_value(spec) {
        Ok(spec) => Analysis::new(spec, modulus_bits, max_cohort).unwrap_err().to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_state_of_another_analysis_is_refused() {
    let kmeans = |clusters| {
        let spec =
            KMeansSpec { max_rows: 10, columns: vec![column("x", 0.0, 1.0, 1)], clusters, iterations: 1, seed: 0 };
        Analysis::new(AnalyticsSpec::KMeans(spec), 32, 3).unwrap()
    };
    let columns = vec![StatisticSpec::Category { name: "c".into(), categories: 2, missing: false }];
    let spec = StatisticsSpec { max_rows: 10, columns, quantile_rounds: 1 };
    let statistics = Analysis::new(AnalyticsSpec::Statistics(spec), 32, 3).unwrap();
    let bytes = kmeans(2).initial().to_bytes().unwrap();
    assert!(kmeans(2).read(&bytes).is_ok());
    assert!(statistics.read(&bytes).unwrap_err().to_string().contains("another kind"));
    let table = Table::new(1, vec![0.5; 4]).unwrap();
    let seeded = run(&kmeans(2), &[table]).to_bytes().unwrap();
    assert!(kmeans(2).read(&seeded).is_ok());
    assert!(kmeans(3).read(&seeded).unwrap_err().to_string().contains("number of clusters"));
    for bytes in [&b""[..], b"{", b"{\"k_means\":{}}", b"null", &[0xff; 40]] {
        assert!(kmeans(2).read(bytes).is_err());
    }
    for length in 0..seeded.len() {
        assert!(kmeans(2).read(&seeded[..length]).is_err());
    }
}
