//! What is simulated: the data, and the task that an operator would write for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client_sdk::models::Architecture;
use datasets::{Dataset, Partition, idx, synthetic};
use simulation::{Data, Drawn, Synthetic};
use task_spec::Cohort;
use task_spec::Strategy;
use task_spec::{ModelSpec, RoundsSpec, SelectionSpec, TaskSpec};

use super::Simulate;
use crate::command::demo;
use crate::data::{self, Model, Source};
use crate::failure::{Exit, Failure, Outcome};
use crate::task_file;

/// Name of the task.
const TASK: &str = "simulation";
/// How long a round waits for participants, and for its own work.
const PATIENCE_MS: u64 = 24 * 3600 * 1000;

/// A source of data that any number of devices can be dealt from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Pool {
    /// The federated Synthetic(α, β) benchmark of Li et al. 2020, generated
    Synthetic,
    /// MNIST or anything in its IDX format, from --data-dir
    Mnist,
}

impl From<Pool> for Source {
    fn from(pool: Pool) -> Self {
        match pool {
            Pool::Synthetic => Self::Synthetic,
            Pool::Mnist => Self::Mnist,
        }
    }
}

/// Which data.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SimulatedData {
    /// What to train on
    #[arg(long, value_enum, default_value = "synthetic")]
    data: Pool,
    /// Folder with the data's files
    #[arg(long, env = "TRIBUTARY_DATA_DIR", value_name = "DIR", required_if_eq("data", "mnist"))]
    data_dir: Option<PathBuf>,
    /// Mnist: how devices draw from the common images: iid, dirichlet:ALPHA or shards:K
    #[arg(long, default_value = "dirichlet:0.5")]
    partition: Partition,
    /// Mnist: examples of each device
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    examples: u32,
    /// Synthetic: how much the devices' models differ
    #[arg(long, default_value_t = 1.0)]
    alpha: f64,
    /// Synthetic: how much the devices' data differ
    #[arg(long, default_value_t = 1.0)]
    beta: f64,
}

/// Data in the hands of devices.
pub(super) struct Dealt {
    pub(super) data: Arc<dyn Data>,
    pub(super) description: String,
    /// Training examples of the device that has most.
    pub(super) most_examples: usize,
    source: Source,
    /// Something of the test data's kind and shape.
    sample: Dataset,
}

impl SimulatedData {
    pub(super) fn deal(&self, population: u32, seed: u64) -> Outcome<Dealt> {
        let data_failure = |error: simulation::SimulationError| Failure::new(Exit::Data, error);
        match self.data {
            Pool::Synthetic => {
                let sample = Dataset::Labelled(synthetic::shard(0, self.alpha, self.beta, seed)?.1);
                let data = Synthetic::new(self.alpha, self.beta, seed, population).map_err(data_failure)?;
                Ok(Dealt {
                    data: Arc::new(data),
                    description: format!("Synthetic({}, {})", self.alpha, self.beta),
                    most_examples: synthetic::MAX_EXAMPLES,
                    source: self.data.into(),
                    sample,
                })
            }
            Pool::Mnist => {
                let dir =
                    self.data_dir.as_deref().ok_or_else(|| Failure::new(Exit::Usage, "mnist needs --data-dir"))?;
                let (pool, test) = idx::load_mnist(dir, seed)?;
                let description = format!("MNIST: {} of {} images each, {}", self.examples, pool.len(), self.partition);
                let sample = Dataset::Labelled(test.subset(&[0]));
                let examples = self.examples as usize;
                let data = Drawn::new(pool, test, self.partition, examples, seed).map_err(data_failure)?;
                Ok(Dealt {
                    data: Arc::new(data),
                    description,
                    most_examples: examples,
                    source: self.data.into(),
                    sample,
                })
            }
        }
    }
}

impl Dealt {
    pub(super) fn architecture(&self, model: Option<Model>) -> Outcome<Architecture> {
        data::architecture(self.source, model, &self.sample)
    }
}

/// The task.
pub(super) fn task(
    simulate: &Simulate,
    architecture: &Architecture,
    most_examples: usize,
    description: &str,
) -> Outcome<TaskSpec> {
    let sizes = |error: &dyn std::fmt::Display| Failure::new(Exit::Usage, format!("the model's sizes: {error}"));
    let drawn = drawn(simulate)?;
    let model = ModelSpec {
        architecture: Some(serde_json::to_value(architecture).map_err(|error| sizes(&error))?),
        tensors: task_file::declarations(architecture).map_err(|error| sizes(&error))?,
        personal: Vec::new(),
        seed: simulate.seed,
    };
    // What is not said here is as in a task file that does not say it.
    let mut task: TaskSpec = serde_json::from_value(serde_json::json!({ "name": TASK, "model": model }))
        .map_err(Failure::because(Exit::Internal, "the task"))?;
    task.description = description.to_owned();
    task.training = simulate.training.plan(architecture);
    task.rounds = RoundsSpec {
        count: simulate.rounds,
        max_attempts: 0,
        select_min: Some(drawn),
        select_max: drawn,
        select_deadline_ms: PATIENCE_MS,
        collect_min: None,
        collect_max: Some(simulate.cohort),
        collect_deadline_ms: simulate.deadline * 1000,
        aggregate_deadline_ms: PATIENCE_MS,
    };
    task.selection = SelectionSpec {
        cohort: Cohort::Count(simulate.cohort),
        over_selection: over_selection(simulate),
        strategy: strategy(&simulate.selector)?,
        seed: Some(simulate.seed),
        ..SelectionSpec::default()
    };
    task.aggregation.clip_range = demo::clip_range(simulate.data.data.into());
    task.training = demo::local::complete(task.training, simulate.population, most_examples);
    task.aggregation.max_weight = demo::local::weight_cap(&task.training, demo::max_weight(most_examples, drawn));
    task.secure_aggregation.enabled = !simulate.insecure_aggregation;
    task.metrics = vec!["train_loss".to_owned()];
    simulate.schedule.apply(&mut task, drawn, Duration::from_secs(simulate.deadline))?;
    Ok(task)
}

/// Devices drawn for a round.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is compared below")]
fn drawn(simulate: &Simulate) -> Outcome<u32> {
    let over_selection = over_selection(simulate);
    if !(0.0..=10.0).contains(&over_selection) {
        return Err(Failure::new(Exit::Usage, "--over-selection must be between 0 and 10"));
    }
    // As the coordinator rounds.
    let drawn = (f64::from(simulate.cohort) * (1.0 + over_selection) - 1e-9).ceil() as u32;
    if drawn > simulate.population {
        let detail = format!(
            "--cohort {} with --over-selection {} draws {drawn}, above --population {}",
            simulate.cohort, over_selection, simulate.population
        );
        return Err(Failure::new(Exit::Usage, detail));
    }
    Ok(drawn)
}

fn over_selection(simulate: &Simulate) -> f64 {
    let usual = if simulate.schedule.trains_ahead() { 0.2 } else { 0.3 };
    simulate.over_selection.unwrap_or(usual)
}

/// A selector of the coordinator's, by name or as a table.
fn strategy(text: &str) -> Outcome<Strategy> {
    let name = text.trim().replace('-', "_");
    let parsed = match serde_json::from_str(&name) {
        Ok(value @ serde_json::Value::Object(_)) => serde_json::from_value(value),
        // One that takes numbers takes them from its defaults.
        _ => serde_json::from_value(serde_json::json!(name))
            .or_else(|error| serde_json::from_value(serde_json::json!({ name: {} })).map_err(|_| error)),
    };
    parsed.map_err(|error| Failure::new(Exit::Usage, format!("--selector {text}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_coordinator_does_not_have_is_refused_and_what_it_has_is_named() {
        assert_eq!(strategy("uniform").unwrap(), Strategy::Uniform);
        let failure = strategy("dowsing").unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.detail.contains("`uniform`"), "{}", failure.detail);
    }
}
