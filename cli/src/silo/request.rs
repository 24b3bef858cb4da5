//! The request for a plan.

use super::rules::{Engine, Gpu, Network};

/// A site's hardware, and the model to train.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// GPUs on each node, at least 1.
    pub(crate) gpus: u64,
    /// One if not given.
    pub(crate) nodes: Option<u64>,
    pub(crate) gpu: Gpu,
    /// Bytes; the data sheet's if not given.
    pub(crate) gpu_memory: Option<u64>,
    /// TCP if not given.
    pub(crate) network: Option<Network>,
    pub(crate) parameters: u64,
    pub(crate) engine: Option<Engine>,
    pub(crate) target_batch: Option<u64>,
    pub(crate) batch_per_gpu: Option<u64>,
    pub(crate) learning_rate: Option<f64>,
    /// Tokens of an example.
    pub(crate) sequence: Option<u64>,
    /// Bytes of activations for an example.
    pub(crate) activations: Option<u64>,
    /// Folders that checkpoints are written to.
    pub(crate) places: Vec<String>,
}

impl Request {
    pub(super) fn all_gpus(&self) -> u64 {
        self.gpus.saturating_mul(self.nodes())
    }

    pub(super) fn nodes(&self) -> u64 {
        self.nodes.unwrap_or(1)
    }

    pub(super) fn network(&self) -> Network {
        self.network.unwrap_or(Network::Tcp)
    }
}
