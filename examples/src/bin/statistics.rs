//! Ten clinics compute age and blood group statistics of their patients without revealing any patient or any clinic's
//! counts.
//!
//! Mean, variance, histogram and median over all rows come from the same secure sum that trains models, and equal those
//! of a single table to the last digit. Run it with `cargo run -p examples --bin statistics`.

use anyhow::{Result, ensure};
use examples::{Lab, normal, pooled, rows, say, unit};
use learning::analytics::{AnalyticsState, ColumnStatistics, Table};
use serde_json::json;

const CLINICS: usize = 10;
const PATIENTS: usize = 3000;
const GROUPS: [&str; 4] = ["0", "A", "B", "AB"];

/// Age and blood group of every patient; clinics differ in their patients' ages.
fn patients() -> Result<Table> {
    let mut seed = 1;
    let row = |patient: usize| {
        let age = (25.0 + 50.0 * patient as f64 / PATIENTS as f64 + 12.0 * normal(&mut seed)).clamp(0.0, 110.0);
        let draw = unit(&mut seed);
        let group = [0.45, 0.86, 0.96].iter().filter(|&&share| draw >= share).count();
        [age, group as f64]
    };
    Ok(Table::new(2, (0..PATIENTS).flat_map(row).collect())?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let all = patients()?;
    let clinic = |index| rows(&all, index * PATIENTS / CLINICS, (index + 1) * PATIENTS / CLINICS);
    let analytics = json!({
        "kind": "statistics",
        "max_rows": 1000,
        "quantile_rounds": 3,
        "columns": [
            { "type": "real", "name": "age", "low": 0.0, "high": 120.0, "edges": [18.0, 40.0, 65.0], "quantiles": [0.5, 0.95] },
            { "type": "category", "name": "blood group", "categories": GROUPS.len() },
        ],
    });
    let lab = Lab::start().await?;
    let tables = (0..CLINICS).map(clinic).collect::<Result<_>>()?;
    let found = lab.analyze("patients", &analytics, tables, |_, _| ()).await?;
    lab.stop().await;

    let AnalyticsState::Statistics(state) = &found else { anyhow::bail!("not statistics: {found:?}") };
    say(&format!("{} patients of {} clinics", state.rows, state.participants));
    for column in &state.columns {
        match column {
            ColumnStatistics::Real { name, mean, variance, histogram, quantiles, .. } => {
                let (mean, spread) = (mean.unwrap_or(f64::NAN), variance.unwrap_or(f64::NAN).sqrt());
                say(&format!("{name}: mean {mean:.3}, standard deviation {spread:.3}"));
                say(&format!("{name}: below 18, 40, 65, and above: {histogram:?}"));
                for quantile in quantiles {
                    say(&format!("{name}: {} % are at most {:.3}", 100.0 * quantile.of, quantile.value));
                }
            }
            ColumnStatistics::Category { name, counts, .. } => {
                let named: Vec<_> =
                    GROUPS.iter().zip(counts).map(|(group, count)| format!("{group}: {count}")).collect();
                say(&format!("{name}: {}", named.join(", ")));
            }
        }
    }
    let AnalyticsState::Statistics(one_table) = pooled(&analytics, &all)? else { anyhow::bail!("not statistics") };
    ensure!(one_table.columns == state.columns, "one table with all patients says something else: {one_table:?}");
    say("one table with all patients says the same, to the last digit");
    Ok(())
}
