//! An app's own convolutional network in candle: five participants learn to read digits, each from its own share.
//!
//! The network exists in this file only. The task lists its tensors, and [`CandleTrainer`] follows the task's plan. Run it with `cargo
//! run --release -p examples --bin candle_cnn`.

use anyhow::{Result, ensure};
use client_sdk::candle_trainer::candle_core::{self, D, DType, Tensor};
use client_sdk::candle_trainer::candle_nn::{
    Conv2d, Conv2dConfig, Linear, Module as _, VarBuilder, conv2d, linear, loss,
};
use client_sdk::journal::MemoryJournal;
use client_sdk::transport::Proxy;
use client_sdk::{CandleTrainer, Dataset, Participant, SecurityPolicy};
use datasets::{Federated, Labelled, Partition, idx};
use examples::{Lab, say};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const PARTICIPANTS: usize = 5;
/// Digits of all participants.
const DIGITS: usize = 1000;
const ROUNDS: u32 = 4;
const SEED: u64 = 42;

/// Two convolutions with pooling, and a linear layer.
struct Net {
    first: Conv2d,
    second: Conv2d,
    out: Linear,
}

impl Net {
    fn new(vb: VarBuilder<'_>) -> candle_core::Result<Self> {
        let same = Conv2dConfig { padding: 1, ..Conv2dConfig::default() };
        Ok(Self {
            first: conv2d(1, 4, 3, same, vb.pp("conv1"))?,
            second: conv2d(4, 8, 3, same, vb.pp("conv2"))?,
            out: linear(8 * 7 * 7, 10, vb.pp("out"))?,
        })
    }

    /// Scores `[batch, 10]` of images `[batch, 784]`.
    fn logits(&self, rows: &Tensor) -> candle_core::Result<Tensor> {
        let images = rows.reshape(((), 1, 28, 28))?;
        let halves = pool(&self.first.forward(&images)?.relu()?)?;
        let quarters = pool(&self.second.forward(&halves)?.relu()?)?;
        self.out.forward(&quarters.flatten_from(1)?)
    }

    fn loss(&self, (rows, labels): &(Tensor, Tensor)) -> candle_core::Result<Tensor> {
        loss::cross_entropy(&self.logits(rows)?, labels)
    }

    fn metrics(&self, (rows, labels): &(Tensor, Tensor)) -> candle_core::Result<Vec<(String, f64)>> {
        let hits = self.logits(rows)?.argmax(D::Minus1)?.eq(labels)?.to_dtype(DType::F32)?;
        Ok(vec![("accuracy".to_owned(), hits.mean_all()?.to_scalar::<f32>()?.into())])
    }
}

/// Maximum over each 2x2 pixels. candle's `max_pool2d` has a wrong gradient, and `max` gives each of several equal pixels the whole.
fn pool(x: &Tensor) -> candle_core::Result<Tensor> {
    let (batch, channels, height, width) = x.dims4()?;
    let (height, width) = (height / 2, width / 2);
    let x = x.reshape((batch, channels, height, 2, width, 2))?.permute([0, 1, 2, 4, 3, 5])?.contiguous()?;
    let x = x.reshape((batch, channels, height, width, 4))?;
    x.gather(&x.argmax_keepdim(D::Minus1)?, D::Minus1)?.squeeze(D::Minus1)
}

fn task() -> Value {
    let tensor = |name: &str, shape: &[u32], bound: f64| {
        let init = json!({ "uniform": { "bound": bound } });
        json!({ "name": name, "shape": shape, "init": init })
    };
    json!({ "spec": {
        "name": "own-cnn",
        "model": { "seed": SEED, "tensors": [
            tensor("conv1.weight", &[4, 1, 3, 3], 0.33),
            { "name": "conv1.bias", "shape": [4] },
            tensor("conv2.weight", &[8, 4, 3, 3], 0.17),
            { "name": "conv2.bias", "shape": [8] },
            tensor("out.weight", &[10, 392], 0.05),
            { "name": "out.bias", "shape": [10] },
        ] },
        "training": { "batch_size": 8, "learning_rate": 0.004, "optimizer": { "name": "adamw" }, "proximal_mu": 0.01 },
        "rounds": { "count": ROUNDS, "select_max": PARTICIPANTS },
        "selection": { "cohort": { "count": PARTICIPANTS } },
        "aggregation": { "max_weight": 5000 },
        "metrics": ["accuracy", "train_loss"]
    } })
}

/// The first rows, for the SDK's trainers.
fn first(rows: &Labelled, count: usize) -> Dataset {
    let indices: Vec<usize> = (0..count.min(rows.len())).collect();
    let rows = rows.subset(&indices);
    Dataset::Labelled { features: rows.features, labels: rows.labels, width: rows.width }
}

#[tokio::main]
async fn main() -> Result<()> {
    let (train, test) = idx::shipped_mnist(SEED)?;
    let train = train.subset(&(0..DIGITS).collect::<Vec<_>>());
    let held_out = first(&test, 100);
    let partition = Partition::Dirichlet { alpha: 0.5 };
    let federated = Federated::partitioned(&train, test, partition, PARTICIPANTS, SEED, "MNIST")?;
    let lab = Lab::start().await?;
    lab.post("/v1/tasks", &task()).await?;

    let mut participants = JoinSet::new();
    for (name, shard) in federated.names.iter().zip(federated.shards) {
        let datasets::Dataset::Labelled(own) = shard else { anyhow::bail!("digits are labelled") };
        let trainer = CandleTrainer::new(Net::new, |net, batch| net.loss(batch), first(&own, own.len()));
        let mut participant = Participant::builder()
            .server(lab.url())
            .proxy(Proxy::none()) // the coordinator is in this process
            .ca_pem(lab.ca_pem())
            .enrollment_token(lab.enrollment_token(name).await?)
            .journal(MemoryJournal::new())
            // Fewer participants than an app should require.
            .secure_aggregation(SecurityPolicy::lowest())
            .trainer(trainer.with_held_out(held_out.clone()).with_metrics(|net, batch| net.metrics(batch)))
            .seed(Some(SEED))
            .build()?;
        participants.spawn(async move { participant.run(std::future::pending()).await });
    }
    let mut accuracies = Vec::new();
    for number in 1..=ROUNDS {
        let round = lab.round("own-cnn", number).await?;
        let metric = |name: &str| round["metrics"][name]["value"].as_f64().unwrap_or(f64::NAN);
        let (accuracy, loss) = (100.0 * metric("accuracy"), metric("train_loss"));
        say(&format!("round {number}: accuracy of the received model {accuracy:.1} %, training loss {loss:.3}"));
        accuracies.push(accuracy);
    }
    lab.stop().await;
    let (first, last) = (accuracies[0], accuracies[accuracies.len() - 1]);
    ensure!(first < 40.0 && last > 50.0, "accuracy went from {first} % to {last} %; chance is 10 %");
    Ok(())
}
