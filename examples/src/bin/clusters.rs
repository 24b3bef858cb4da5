//! Ten shops find clusters of customers without revealing any customer.
//!
//! Federated k-means: first a sketch of all rows, then Lloyd's algorithm, all by secure sums. Run it with `cargo run -p
//! examples --bin clusters`.

use anyhow::{Result, ensure};
use examples::{Lab, normal, pooled, rows, say};
use learning::analytics::{AnalyticsState, KMeansState, Table};
use serde_json::json;

const SHOPS: usize = 10;
const CUSTOMERS: usize = 2000;
/// Visits per month and amount spent per visit.
const KINDS: [[f64; 2]; 5] = [[2.0, 90.0], [4.0, 20.0], [12.0, 35.0], [20.0, 12.0], [25.0, 60.0]];

/// Sorted by kind: no shop sees customers of all kinds.
fn customers() -> Result<Table> {
    let mut seed = 7;
    let row = |customer: usize| {
        let [visits, spent] = KINDS[customer * KINDS.len() / CUSTOMERS];
        [visits + 1.2 * normal(&mut seed), spent + 4.0 * normal(&mut seed)]
    };
    Ok(Table::new(2, (0..CUSTOMERS).flat_map(row).collect())?)
}

fn clusters(state: AnalyticsState) -> Result<KMeansState> {
    match state {
        AnalyticsState::KMeans(state) => Ok(state),
        other => anyhow::bail!("not clusters: {other:?}"),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let all = customers()?;
    let shop = |index| rows(&all, index * CUSTOMERS / SHOPS, (index + 1) * CUSTOMERS / SHOPS);
    let analytics = json!({
        "kind": "k_means",
        "max_rows": 500,
        "clusters": KINDS.len(),
        "iterations": 8,
        "columns": [{ "name": "visits", "low": 0.0, "high": 31.0 }, { "name": "spent", "low": 0.0, "high": 120.0 }],
    });
    let lab = Lab::start().await?;
    let tables = (0..SHOPS).map(shop).collect::<Result<_>>()?;
    let tell = |number, round: &serde_json::Value| {
        if let Some(inertia) = round["metrics"]["inertia_per_row"]["value"].as_f64() {
            say(&format!("round {number:>2}: mean squared distance to the nearest centre {inertia:.4}"));
        }
    };
    let found = clusters(lab.analyze("customers", &analytics, tables, tell).await?)?;
    lab.stop().await;

    for (centre, customers) in found.centroids.iter().zip(&found.counts) {
        say(&format!("{customers:>4} customers come {:>4.1} times and spend {:>4.1}", centre[0], centre[1]));
    }
    let one_table = clusters(pooled(&analytics, &all)?)?;
    let (federated, pooled) = (found.inertia.unwrap_or(f64::NAN), one_table.inertia.unwrap_or(f64::NAN));
    say(&format!("inertia {federated:.1}; where all customers are in one table {pooled:.1}"));
    ensure!(federated <= 1.01 * pooled, "more than one per cent worse than one table with all customers");
    for kind in &KINDS {
        let (_, distance) = found.nearest(kind).unwrap_or((0, f64::INFINITY));
        ensure!(distance < 2.0, "no cluster is near {kind:?}");
    }
    Ok(())
}
