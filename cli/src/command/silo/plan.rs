//! `tributary silo plan`.

use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::silo::{Engine, Gpu, Launcher, Network, Request, bytes, count, plan, script};

/// Arguments of `tributary silo plan`.
#[derive(clap::Args)]
pub(crate) struct PlanArgs {
    /// GPUs per node, 1 to 64
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    gpus: u64,
    /// Number of nodes, 1 to 1024 [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    nodes: Option<u64>,
    /// GPU model: h100, a100, v100 or p100
    #[arg(long, value_enum, hide_possible_values = true)]
    gpu: Gpu,
    /// Memory per GPU, such as 80GB [default: from the data sheet]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    gpu_memory: Option<u64>,
    /// Network between nodes: infiniband or tcp [default: tcp]
    #[arg(long, value_enum, hide_possible_values = true)]
    network: Option<Network>,
    /// Number of model parameters, such as 7e9 or 350M
    #[arg(long, value_name = "P", value_parser = count)]
    parameters: u64,
    /// Global batch size [default: 512, or the next multiple of the number of GPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    target_batch: Option<u64>,
    /// Micro-batch size per GPU [default: as many as fit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    batch_per_gpu: Option<u64>,
    /// Learning rate [default: proportional to the batch size, 0.004 for 512]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    learning_rate: Option<f64>,
    /// Tokens per example [default: 2048]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    sequence: Option<u64>,
    /// Measured activation memory per example, such as 500MB [default: estimated]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    activations: Option<u64>,
    /// Sharding library: pytorch or deepspeed [default: by model size]
    #[arg(long, value_enum, hide_possible_values = true)]
    engine: Option<Engine>,
    /// Checkpoint folder; may be repeated
    #[arg(long, value_name = "DIR")]
    checkpoint_place: Vec<String>,
    /// Print a launch script instead: torchrun, slurm or kubernetes
    #[arg(long, value_enum, hide_possible_values = true)]
    script: Option<Launcher>,
    /// Python training script and its arguments
    #[arg(long, value_name = "SCRIPT", default_value = "train.py", requires = "script")]
    program: String,
}

/// A launch script, as JSON output.
#[derive(serde::Serialize)]
struct Script {
    launcher: Launcher,
    text: String,
}

impl PlanArgs {
    pub(super) fn run(self, output: Output) -> Outcome {
        let request = Request {
            gpus: self.gpus,
            nodes: self.nodes,
            gpu: self.gpu,
            gpu_memory: self.gpu_memory,
            network: self.network,
            parameters: self.parameters,
            engine: self.engine,
            target_batch: self.target_batch,
            batch_per_gpu: self.batch_per_gpu,
            learning_rate: self.learning_rate,
            sequence: self.sequence,
            activations: self.activations,
            places: self.checkpoint_place,
        };
        let usage = |error| Failure::new(Exit::Usage, error);
        let document = plan(&request).map_err(usage)?;
        let Some(launcher) = self.script else {
            output.document(&document, || serde_json::to_string_pretty(&document).unwrap_or_default());
            return Ok(());
        };
        let script = Script { launcher, text: script(&document, launcher, &self.program).map_err(usage)? };
        output.document(&script, || script.text.clone());
        Ok(())
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| format!("{text:?} is no learning rate: a number above 0 is expected, as in 0.004"))
}
