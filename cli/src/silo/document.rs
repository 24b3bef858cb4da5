//! The plan: one document.

use std::collections::BTreeMap;

use serde::Serialize;

use super::WrongRequest;
use super::batch::{Batch, divide};
use super::figure::Figure;
use super::memory::{Memory, Shape, host, state, usable};
use super::request::Request;
use super::rules::{
    CHECKPOINT_MINUTES, CHECKPOINT_STEPS, CHECKPOINTS_KEPT, Engine, Network, OPTIMIZER_BYTES, Precision, Sharding,
    USABLE, UTILISATION, WEIGHT_BYTES,
};
use super::strategy::choose;

/// How a site trains its model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Document {
    pub(crate) strategy: Strategy,
    pub(crate) batch_configuration: Batch,
    pub(crate) distributed_config: Distributed,
    pub(crate) rdma_config: Rdma,
    pub(crate) checkpoint_strategy: Checkpoints,
    pub(crate) performance_targets: Targets,
    /// Commands to run before relying on the rest.
    pub(crate) verification_steps: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Strategy {
    pub(crate) engine: Figure<Engine>,
    pub(crate) sharding: Figure<Sharding>,
    pub(crate) precision: Figure<Precision>,
    pub(crate) loss_scaling: Figure<bool>,
    pub(crate) activation_checkpointing: Figure<bool>,
    pub(crate) parameters: Figure<u64>,
    pub(crate) memory: Memory,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Distributed {
    pub(crate) gpus_per_node: Figure<u64>,
    pub(crate) nodes: Figure<u64>,
    pub(crate) world_size: Figure<u64>,
    pub(crate) backend: Figure<&'static str>,
    /// Restarts are the participant's, which starts the whole group anew.
    pub(crate) max_restarts: Figure<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Rdma {
    pub(crate) network: Figure<Network>,
    pub(crate) env_vars: BTreeMap<&'static str, Figure<&'static str>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Checkpoints {
    pub(crate) asynchronous: Figure<bool>,
    pub(crate) every_steps: Figure<u64>,
    pub(crate) every_minutes: Figure<u64>,
    pub(crate) keep: Figure<u64>,
    pub(crate) places: Figure<Vec<String>>,
    pub(crate) bytes: Figure<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Targets {
    pub(crate) tokens_per_s: Figure<f64>,
    pub(crate) samples_per_s: Figure<f64>,
    pub(crate) step_seconds: Figure<f64>,
    pub(crate) scaling_efficiency: Figure<f64>,
}

/// Plans; the same for the same request.
///
/// # Errors
/// [`WrongRequest`]. A model that does not fit is a result: the document states it.
pub(crate) fn plan(request: &Request) -> Result<Document, WrongRequest> {
    let gpu = request.gpu.row();
    let memory = Figure::given_or(request.gpu_memory, || {
        Figure::assumed(gpu.memory, "the data sheet's; some are sold with less")
    });
    let sequence = Figure::given_or(request.sequence, || Figure::assumed(2048, "tokens of an example"));
    let shape = Shape::of(request.parameters);
    let whole = request.activations.unwrap_or_else(|| shape.activations(sequence.value, false));
    // Recomputation costs a third more time, so it is used only if the examples would not fit otherwise.
    let recomputed = request.activations.unwrap_or_else(|| shape.activations(sequence.value, true));
    // As many as the user wants on a GPU at once.
    let examples = request.batch_per_gpu.unwrap_or(1);
    let (engine, sharding, row) = choose(request, memory.value, recomputed.saturating_mul(examples))?;
    let state = state(request.parameters, sharding, request.all_gpus());
    let kept = state.saturating_add(whole.saturating_mul(examples));
    let recomputes = request.activations.is_none() && kept > usable(memory.value);
    let per_example = if recomputes { recomputed } else { whole };
    let room = usable(memory.value).saturating_sub(state) / per_example.max(1);
    let batch = divide(request, room)?;
    let total = state.saturating_add(per_example.saturating_mul(batch.per_gpu.value));
    let fits = total <= usable(memory.value);
    let engine_figure = Figure::given_or(request.engine, || {
        Figure::computed(engine, "PyTorch's, unless the model is so large that it needs an offload to the processor")
    });
    let strategy = Strategy {
        engine: engine_figure,
        sharding: Figure::computed(sharding, sharding_rule(*row.parameters.start(), *row.parameters.end())),
        precision: Figure::computed(gpu.precision, "bf16 on A100 and H100, fp16 on V100 and P100"),
        loss_scaling: Figure::computed(gpu.precision.loss_scaling(), "with fp16"),
        activation_checkpointing: Figure::computed(
            recomputes,
            "if one example, or the batch per GPU that is given, would not fit otherwise",
        ),
        parameters: Figure::user(request.parameters),
        memory: Memory {
            usable: Figure::computed(usable(memory.value), format!("{USABLE} of the memory")),
            state: Figure::computed(state, "parameters × (2 + 2 + 12) / shards, each part by its own shards"),
            activations_per_example: Figure::given_or(request.activations, || {
                Figure::assumed(
                    per_example,
                    format!("a transformer of width 128 × depth and {} tokens: measure it", sequence.value),
                )
            }),
            total: Figure::computed(total, "state + activations × batch per GPU"),
            host: Figure::computed(
                host(request.parameters, sharding, request.nodes()),
                "parameters × 12 / nodes, if offloaded",
            ),
            fits: Figure::computed(fits, "total ≤ usable"),
            gpu: memory,
        },
    };
    let targets = targets(request, sequence.value, batch.target.value, recomputes);
    Ok(Document {
        distributed_config: Distributed {
            gpus_per_node: Figure::user(request.gpus),
            nodes: Figure::given_or(request.nodes, || Figure::assumed(1, "one machine")),
            world_size: Figure::computed(request.all_gpus(), "GPUs × nodes"),
            backend: Figure::computed("nccl", "NVIDIA's GPUs"),
            max_restarts: Figure::computed(0, "the participant starts the whole group anew"),
        },
        rdma_config: rdma(request),
        checkpoint_strategy: checkpoints(request),
        performance_targets: targets,
        verification_steps: verification(request, &batch),
        strategy,
        batch_configuration: batch,
    })
}

fn sharding_rule(from: u64, to: u64) -> String {
    let range = match (from, to) {
        (1, to) => format!("under {:e}", to.saturating_add(1)),
        (from, u64::MAX) => format!("above {:e}", from.saturating_sub(1)),
        (from, to) => format!("{from:e} to {to:e}"),
    };
    format!("for {range} parameters, the first that fits")
}

fn rdma(request: &Request) -> Rdma {
    let network = request.network();
    let set = |(name, value): &(&'static str, &'static str)| {
        (*name, Figure::assumed(*value, "usual for this network; measure with nccl-tests"))
    };
    let variables = network.row().variables.iter().map(set);
    let network = Figure::given_or(request.network, || Figure::assumed(network, "what every machine has"));
    Rdma { network, env_vars: variables.collect() }
}

fn checkpoints(request: &Request) -> Checkpoints {
    let places = (!request.places.is_empty()).then(|| request.places.clone());
    Checkpoints {
        asynchronous: Figure::assumed(true, "torch.distributed.checkpoint.async_save: training goes on meanwhile"),
        every_steps: Figure::assumed(CHECKPOINT_STEPS, "or every_minutes, whichever comes first"),
        every_minutes: Figure::assumed(CHECKPOINT_MINUTES, "what may be lost"),
        keep: Figure::assumed(CHECKPOINTS_KEPT, "the last ones"),
        places: Figure::given_or(places, || {
            let folders = ["$TRIBUTARY_JOB/checkpoint", "/var/tmp/checkpoints"].map(str::to_owned);
            Figure::assumed(folders.to_vec(), "the job's folder, and one on a disk of the node")
        }),
        bytes: Figure::computed(
            request.parameters.saturating_mul(WEIGHT_BYTES + OPTIMIZER_BYTES),
            "parameters × (2 + 12)",
        ),
    }
}

#[expect(clippy::cast_precision_loss, reason = "expectations are not exact")]
fn targets(request: &Request, sequence: u64, batch: u64, recomputes: bool) -> Targets {
    let efficiency = match (request.all_gpus(), request.nodes()) {
        (1, _) => 1.0,
        (_, 1) => 0.95,
        _ => request.network().row().efficiency,
    };
    // Two forward, four backward, and two more where activations are computed anew.
    let operations = if recomputes { 8.0 } else { 6.0 };
    let peak = request.gpu.row().peak_tflops * 1e12 * UTILISATION * request.all_gpus() as f64 * efficiency;
    let tokens = peak / (operations * request.parameters as f64);
    let samples = tokens / sequence as f64;
    let rule = format!(
        "{operations} operations per parameter and token, at {UTILISATION} of the data sheet's peak and the efficiency below"
    );
    Targets {
        tokens_per_s: Figure::assumed(tokens, rule),
        samples_per_s: Figure::assumed(samples, format!("of {sequence} tokens")),
        step_seconds: Figure::assumed(batch as f64 / samples, "target batch / samples per second"),
        scaling_efficiency: Figure::assumed(efficiency, "one process's step / step / processes; nothing is promised"),
    }
}

fn verification(request: &Request, batch: &Batch) -> Vec<String> {
    let mut steps = vec![
        "nvidia-smi topo -m: the GPUs of a node are connected as you think".to_owned(),
        format!("all_reduce_perf -b 8M -e 1G -f 2 -g {} of nccl-tests, with the variables above", request.gpus),
        "20 steps with one process and with two on the same batch: the same weights to 1e-6 (examples/silo/tests/equality.py does it)".to_owned(),
        format!(
            "one step with {} examples per GPU: torch.cuda.max_memory_allocated() against strategy.memory.total",
            batch.per_gpu.value
        ),
        "a checkpoint, SIGKILL of a rank, a start: the training goes on, and a deterministic one ends in the same bytes".to_owned(),
        "samples per second of one GPU and of all: the efficiency against performance_targets".to_owned(),
    ];
    if request.network() == Network::Infiniband {
        steps.insert(1, "ibstat: every port is Active; NCCL_DEBUG=INFO prints NET/IB and GDRDMA".to_owned());
    }
    steps
}
