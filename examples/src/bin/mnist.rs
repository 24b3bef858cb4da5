//! Ten participants learn to read digits, each from its own skewed share of MNIST, with the SDK's built-in trainer.
//!
//! Run it with `cargo run --release -p examples --bin mnist`. The digits come with `datasets`.

use std::sync::Arc;

use anyhow::{Result, ensure};
use client_sdk::journal::MemoryJournal;
use client_sdk::models::{Architecture, Mlp};
use client_sdk::train::{self, Device};
use client_sdk::transport::Proxy;
use client_sdk::{Dataset, ModelTrainer, Participant};
use datasets::{Federated, Labelled, Partition, idx};
use examples::{Lab, say};
use serde_json::json;
use tokio::task::JoinSet;

const PARTICIPANTS: usize = 10;
const ROUNDS: u32 = 5;
const SEED: u64 = 42;
/// Minimum accuracy; 94.3 % was measured.
const FLOOR: f64 = 0.92;

#[tokio::main]
async fn main() -> Result<()> {
    let (train, test) = idx::shipped_mnist(SEED)?;
    let model = Architecture::Mlp(Mlp::default());
    let held_out = Arc::new(owned(test.clone()));
    let partition = Partition::Dirichlet { alpha: 0.5 };
    let federated = Federated::partitioned(&train, test, partition, PARTICIPANTS, SEED, "MNIST")?;
    let lab = Lab::start().await?;
    lab.post("/v1/tasks", &task(&model)?).await?;

    let mut participants = JoinSet::new();
    for (name, shard) in federated.names.iter().zip(federated.shards) {
        let datasets::Dataset::Labelled(own) = shard else { anyhow::bail!("digits are labelled") };
        let nothing = owned(own.subset(&[]));
        let mut participant = Participant::builder()
            .server(lab.url())
            .proxy(Proxy::none()) // the coordinator is in this process
            .ca_pem(lab.ca_pem())
            .enrollment_token(lab.enrollment_token(name).await?)
            .journal(MemoryJournal::new())
            .trainer(ModelTrainer::new(owned(own), nothing, Device::Cpu))
            .seed(Some(SEED))
            .build()?;
        participants.spawn(async move { participant.run(std::future::pending()).await });
    }
    let mut accuracy = 0.0;
    for number in 1..=ROUNDS {
        let round = lab.round("digits", number).await?;
        let published = lab.model("digits", number).await?;
        let found = held_out.with_examples(|examples| train::evaluate(&model, &published, examples, &Device::Cpu));
        accuracy = found?.accuracy;
        let loss = round["metrics"]["train_loss"]["value"].as_f64().unwrap_or(f64::NAN);
        say(&format!("round {number}: training loss {loss:.4}, accuracy on held-out digits {:.2} %", 100.0 * accuracy));
    }
    lab.stop().await;
    ensure!(accuracy >= FLOOR, "accuracy {accuracy} is below {FLOOR}");
    Ok(())
}

/// Converts the rows for the SDK's trainer.
fn owned(rows: Labelled) -> Dataset {
    Dataset::Labelled { features: rows.features, labels: rows.labels, width: rows.width }
}

fn task(model: &Architecture) -> Result<serde_json::Value> {
    Ok(json!({ "spec": {
        "name": "digits",
        "model": { "architecture": model, "tensors": model.tensors()?, "seed": SEED },
        "training": { "epochs": 2, "batch_size": 10, "learning_rate": 0.1 },
        "rounds": { "count": ROUNDS, "select_max": PARTICIPANTS },
        "selection": { "cohort": { "count": PARTICIPANTS } },
        "aggregation": { "max_weight": 5000 },
        "metrics": ["train_loss"]
    } }))
}
