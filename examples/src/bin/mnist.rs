//! Ten participants learn to read digits, each from its own skewed share of MNIST, with the SDK's ready training.
//!
//! Run it with `cargo run --release -p examples --bin mnist`. It needs the IDX files in `TRIBUTARY_DATA_DIR`
//! (`../shared/data/mnist10k` is looked at as well) and says so loudly if they are not there.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use client_sdk::journal::MemoryJournal;
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::models::{Architecture, Mlp};
use client_sdk::train::{self, Device, Evaluation, Examples, SgdConfig};
use client_sdk::{Participant, Trained, Trainer, TrainerError, TrainingJob};
use datasets::{Dataset, Federated, Labelled, Partition, idx};
use examples::Lab;
use serde_json::json;
use tokio::task::JoinSet;

const PARTICIPANTS: usize = 10;
const ROUNDS: u32 = 5;
const SEED: u64 = 42;
/// Accuracy below which something is broken; 94.3 % was measured.
const FLOOR: f64 = 0.92;

/// Somebody's digits, and the model that all agreed on.
struct Digits {
    model: Architecture,
    own: Labelled,
}

impl Digits {
    fn examples_of(&self) -> Examples<'_> {
        Examples::Labelled { features: &self.own.features, labels: &self.own.labels, width: self.own.width }
    }

    fn score(&self, model: &Parameters) -> Result<Evaluation, TrainerError> {
        train::evaluate(&self.model, model, self.examples_of(), &Device::Cpu).map_err(TrainerError::failed)
    }
}

impl Trainer for Digits {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        #[expect(clippy::cast_possible_truncation, reason = "the trainer's numbers are f32")]
        let config = SgdConfig {
            epochs: Some(job.plan.epochs),
            batch_size: job.plan.batch_size,
            learning_rate: job.plan.learning_rate as f32,
            seed: job.seed,
            ..SgdConfig::one_epoch()
        };
        let trained = train::train(&self.model, model, self.examples_of(), &config, &Device::Cpu);
        let trained = trained.map_err(TrainerError::failed)?;
        let mut parameters = model.clone();
        parameters.values_mut().iter_mut().zip(&trained.delta).for_each(|(value, delta)| *value += delta);
        let loss = MetricValue { value: trained.mean_loss, count: trained.examples };
        Ok(Trained { parameters, examples: trained.examples, metrics: vec![("train_loss".into(), loss)] })
    }

    fn evaluate(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        let score = self.score(model)?;
        Ok(vec![("accuracy".into(), MetricValue { value: score.accuracy, count: score.examples })])
    }

    fn examples(&self) -> u64 {
        self.own.len() as u64
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let Some(folder) = data_folder() else {
        say("SKIPPED: there is no MNIST here. Put the IDX files into a folder and name it in TRIBUTARY_DATA_DIR.");
        return Ok(());
    };
    let (train, test) = idx::load_mnist(&folder, SEED)?;
    let judge = Digits { model: Architecture::Mlp(Mlp::default()), own: test.clone() };
    let partition = Partition::Dirichlet { alpha: 0.5 };
    let federated = Federated::partitioned(&train, test, partition, PARTICIPANTS, SEED, "MNIST")?;
    let lab = Lab::start().await?;
    lab.post("/v1/tasks", &task(&judge.model)?).await?;

    let mut participants = JoinSet::new();
    for (name, shard) in federated.names.iter().zip(federated.shards) {
        let Dataset::Labelled(own) = shard else { anyhow::bail!("digits are labelled") };
        let mut participant = Participant::builder()
            .server(lab.url())
            .ca_pem(lab.ca_pem())
            .enrollment_token(lab.enrollment_token(name).await?)
            .journal(MemoryJournal::new())
            .trainer(Digits { model: judge.model.clone(), own })
            .seed(Some(SEED))
            .build()?;
        participants.spawn(async move { participant.run(std::future::pending()).await });
    }
    let mut accuracy = 0.0;
    for number in 1..=ROUNDS {
        let round = lab.round("digits", number).await?;
        accuracy = judge.score(&lab.model("digits", number).await?)?.accuracy;
        let loss = round["metrics"]["train_loss"]["value"].as_f64().unwrap_or(f64::NAN);
        say(&format!("round {number}: training loss {loss:.4}, accuracy on held-out digits {:.2} %", 100.0 * accuracy));
    }
    lab.stop().await;
    ensure!(accuracy >= FLOOR, "accuracy {accuracy} is below {FLOOR}");
    Ok(())
}

fn task(model: &Architecture) -> Result<serde_json::Value> {
    let declare = |tensor: learning::TensorInit| {
        let init = json!({ "uniform": { "bound": tensor.bound()? } });
        Ok(json!({ "name": tensor.spec.name, "shape": tensor.spec.shape, "init": init }))
    };
    let tensors: Result<Vec<_>> = model.tensors()?.into_iter().map(declare).collect();
    Ok(json!({ "spec": {
        "name": "digits",
        "model": { "tensors": tensors.context("the model's tensors")?, "seed": SEED },
        "training": { "epochs": 2, "batch_size": 10, "learning_rate": 0.1 },
        "rounds": { "count": ROUNDS, "select_max": PARTICIPANTS },
        "selection": { "cohort": { "count": PARTICIPANTS } },
        "aggregation": { "max_weight": 5000 },
        "metrics": ["accuracy", "train_loss"]
    } }))
}

#[expect(clippy::disallowed_methods, reason = "the folder may be named in the environment")]
fn data_folder() -> Option<PathBuf> {
    let named = std::env::var_os("TRIBUTARY_DATA_DIR").map(PathBuf::from);
    let shared = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/mnist10k"));
    named.into_iter().chain([shared]).find(|folder| folder.is_dir())
}

#[expect(clippy::print_stdout, reason = "an example tells what it found")]
fn say(words: &str) {
    println!("{words}");
}
