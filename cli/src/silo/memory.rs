//! Memory of a GPU.

use serde::Serialize;

use super::figure::Figure;
use super::rules::{GRADIENT_BYTES, OPTIMIZER_BYTES, Sharding, USABLE, WEIGHT_BYTES};

/// Over how many GPUs each kind of state is spread, and whether the optimizer's is on a GPU at all.
struct Shards {
    weights: u64,
    gradients: u64,
    optimizer: u64,
    offloads: bool,
}

impl Shards {
    fn of(sharding: Sharding, gpus: u64) -> Self {
        let (weights, rest, offloads) = match sharding {
            Sharding::Ddp => (1, 1, false),
            Sharding::ShardGradOp | Sharding::Zero2 => (1, gpus, false),
            Sharding::FullShard | Sharding::Zero3 => (gpus, gpus, false),
            Sharding::Zero3Offload => (gpus, gpus, true),
        };
        Self { weights, gradients: rest, optimizer: rest, offloads }
    }
}

/// Bytes of weights, gradients and optimizer on each GPU: parameters × (2 + 2 + 12) / shards, each by its own number of shards.
pub(super) fn state(parameters: u64, sharding: Sharding, gpus: u64) -> u64 {
    let shards = Shards::of(sharding, gpus);
    let part = |bytes: u64, shards: u64| parameters.saturating_mul(bytes).div_ceil(shards);
    let optimizer = if shards.offloads { 0 } else { part(OPTIMIZER_BYTES, shards.optimizer) };
    part(WEIGHT_BYTES, shards.weights) + part(GRADIENT_BYTES, shards.gradients) + optimizer
}

/// Bytes in the processor's memory, on each node.
pub(super) fn host(parameters: u64, sharding: Sharding, nodes: u64) -> u64 {
    if !Shards::of(sharding, nodes).offloads {
        return 0;
    }
    parameters.saturating_mul(OPTIMIZER_BYTES).div_ceil(nodes)
}

/// A transformer of so many parameters, P = 12 · depth · width² with width = 128 · depth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    depth: f64,
    width: f64,
}

impl Shape {
    #[expect(clippy::cast_precision_loss, reason = "a shape that is assumed is not exact")]
    pub(super) fn of(parameters: u64) -> Self {
        let depth = (parameters as f64 / (12.0 * 128.0 * 128.0)).cbrt().max(1.0);
        Self { depth, width: 128.0 * depth }
    }

    /// Bytes of activations for one example of so many tokens: 34 · tokens · width in each layer; if they are computed anew, the input
    /// of each layer and all of one.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "above 0, and an estimate"
    )]
    pub(super) fn activations(self, tokens: u64, recomputed: bool) -> u64 {
        let token = tokens as f64 * self.width;
        let bytes = if recomputed { 2.0 * token * self.depth + 34.0 * token } else { 34.0 * token * self.depth };
        bytes.ceil() as u64
    }
}

/// Memory of one GPU, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Memory {
    /// Available memory, by the data sheet or the user.
    pub(crate) gpu: Figure<u64>,
    /// The part of it that is planned for.
    pub(crate) usable: Figure<u64>,
    /// Weights, gradients, optimizer.
    pub(crate) state: Figure<u64>,
    /// Bytes of activations that one example takes.
    pub(crate) activations_per_example: Figure<u64>,
    /// The state, and the activations of the whole batch of a GPU.
    pub(crate) total: Figure<u64>,
    /// In the processor's memory, on each node.
    pub(crate) host: Figure<u64>,
    /// Whether the batch of a GPU fits.
    pub(crate) fits: Figure<bool>,
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a number below 2^53"
)]
pub(super) fn usable(memory: u64) -> u64 {
    (memory as f64 * USABLE) as u64
}
