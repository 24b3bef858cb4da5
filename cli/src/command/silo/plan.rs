//! `tributary silo plan`.

use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::silo::{Engine, Gpu, Launcher, Network, Request, bytes, count, plan, script};

/// Arguments of `tributary silo plan`.
#[derive(clap::Args)]
pub(crate) struct PlanArgs {
    /// GPUs on each node, 1 to 64
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    gpus: u64,
    /// Nodes, 1 to 1024 [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    nodes: Option<u64>,
    /// The kind of GPU: h100, a100, v100 or p100
    #[arg(long, value_enum, hide_possible_values = true)]
    gpu: Gpu,
    /// Memory of one GPU, such as 80GB [default: the data sheet's]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    gpu_memory: Option<u64>,
    /// What nodes are connected by: infiniband or tcp [default: tcp]
    #[arg(long, value_enum, hide_possible_values = true)]
    network: Option<Network>,
    /// Parameters of the model, such as 7e9 or 350M
    #[arg(long, value_name = "P", value_parser = count)]
    parameters: u64,
    /// Examples of one step, on all GPUs together [default: 512, or the next multiple of the GPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    target_batch: Option<u64>,
    /// Examples that one GPU takes at once [default: as many as fit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    batch_per_gpu: Option<u64>,
    /// Learning rate [default: in proportion to the batch, 0.004 for 512]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    learning_rate: Option<f64>,
    /// Tokens of an example [default: 2048]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    sequence: Option<u64>,
    /// Memory of the activations of one example, as measured, such as 500MB [default: estimated]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    activations: Option<u64>,
    /// Who shards: pytorch or deepspeed [default: by the size of the model]
    #[arg(long, value_enum, hide_possible_values = true)]
    engine: Option<Engine>,
    /// A folder that checkpoints are written to; may be given several times
    #[arg(long, value_name = "DIR")]
    checkpoint_place: Vec<String>,
    /// Print the file that runs the plan instead: torchrun, slurm or kubernetes
    #[arg(long, value_enum, hide_possible_values = true)]
    script: Option<Launcher>,
    /// The script of Python that trains, and its arguments
    #[arg(long, value_name = "SCRIPT", default_value = "train.py", requires = "script")]
    program: String,
}

/// A file to run, for programs that asked for JSON.
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
