//! Ten participants train boosted trees to classify digits, by secure sums of histograms.
//!
//! Digits are shrunk to 7 by 7 pixels. The same trees are also trained on pooled data: the federation may be at most
//! one point worse. Run it with `cargo run --release -p examples --bin trees`. The digits come with `datasets`.

use anyhow::{Result, ensure};
use datasets::{Labelled, idx};
use examples::{Lab, pooled, rows, say};
use learning::analytics::{AnalyticsState, Table, TreesState};
use serde_json::json;

const PARTICIPANTS: usize = 10;
const SIDE: usize = 7;
const SEED: u64 = 42;

/// Mean brightness of 4 by 4 pixels.
fn shrunk(digits: &Labelled) -> Result<Table> {
    let whole = 4 * SIDE;
    let small = |image: &[f32], index: usize| {
        let (top, left) = (index / SIDE * 4, index % SIDE * 4);
        let pixels = (0..16).map(|pixel| f64::from(image[(top + pixel / 4) * whole + left + pixel % 4]));
        pixels.sum::<f64>() / 16.0
    };
    let images = digits.features.chunks_exact(digits.width);
    let values = images.flat_map(|image| (0..SIDE * SIDE).map(move |index| small(image, index))).collect();
    let targets = digits.labels.iter().map(|&label| f64::from(label)).collect();
    Ok(Table::new(SIDE * SIDE, values)?.with_targets(targets)?)
}

fn digits() -> Result<(Table, Table)> {
    let (train, test) = idx::shipped_mnist(SEED)?;
    Ok((shrunk(&train)?, shrunk(&test)?))
}

fn trees(state: AnalyticsState) -> Result<TreesState> {
    match state {
        AnalyticsState::Trees(state) => Ok(state),
        other => anyhow::bail!("not trees: {other:?}"),
    }
}

fn accuracy(state: &TreesState, table: &Table) -> f64 {
    let right = |&row: &usize| state.ensemble.predict(table.row(row)).value() == table.targets()[row];
    (0..table.rows()).filter(right).count() as f64 / table.rows() as f64
}

#[tokio::main]
async fn main() -> Result<()> {
    let (train, test) = digits()?;
    let part = |index| rows(&train, index * train.rows() / PARTICIPANTS, (index + 1) * train.rows() / PARTICIPANTS);
    // Pixels are scaled to a mean of 0 and a deviation of 1.
    let (low, high) = (-0.5, 3.0);
    let analytics = json!({
        "kind": "trees",
        "method": "boosting",
        "max_rows": 1000,
        "target": { "type": "class", "classes": 10 },
        "columns": [{ "name": "pixel", "low": low, "high": high, "repeat": SIDE * SIDE }],
        "trees": 8,
        "depth": 5,
        "bins": 16,
        "learning_rate": 0.5,
    });
    let lab = Lab::start().await?;
    let tables = (0..PARTICIPANTS).map(part).collect::<Result<_>>()?;
    let tell = |number, round: &serde_json::Value| {
        let metric = |name: &str| round["metrics"][name]["value"].as_f64();
        if let (Some(loss), Some(right), 3) = (metric("train_loss"), metric("train_accuracy"), number % 5) {
            say(&format!(
                "round {number:>2}: {:>5.2} % of the training digits are read, loss {loss:.4}",
                100.0 * right
            ));
        }
    };
    let found = trees(lab.analyze("digits", &analytics, tables, tell).await?)?;
    lab.stop().await;

    let one_place = trees(pooled(&analytics, &train)?)?;
    let (federated, pooled) = (accuracy(&found, &test), accuracy(&one_place, &test));
    say(&format!(
        "of {} held-out digits {:.2} % are read; by trees grown in one place {:.2} %",
        test.rows(),
        100.0 * federated,
        100.0 * pooled
    ));
    ensure!(federated >= pooled - 0.01, "more than one point worse than in one place");
    ensure!(federated > 0.7, "accuracy {federated}: the trees cannot read");
    Ok(())
}
