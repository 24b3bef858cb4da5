//! Model versions: the published models of a task, and their origin.

use serde::{Deserialize, Serialize};

use crate::id::{Digest, TaskId};
use crate::time::Timestamp;

/// One published set of parameters. Version 0 is the initial model; round `n` publishes version `n`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelVersion {
    pub task: TaskId,
    /// Number of the version, from 0.
    pub version: u32,
    /// Of the safetensors file; also the blob's address.
    pub sha256: Digest,
    /// Size of the safetensors file, in bytes.
    pub bytes: u64,
    /// The round that published it, or after which an operator restored it; `None` for version 0.
    pub round: Option<u32>,
    /// The version it was trained from, or is again.
    pub parent: Option<u32>,
    /// Clipping norm of the rounds based on it, finite and above 0; `None` without a privacy mechanism.
    pub clip: Option<f64>,
    /// The blob of the server optimizer's state; `None` for version 0 and for a stateless optimizer.
    pub optimizer_state: Option<Digest>,
    pub created_at: Timestamp,
}

impl ModelVersion {
    /// Copies this version as the newest: the next round starts from it, with its clipping norm and optimizer state.
    #[must_use]
    pub fn again(&self, version: u32, round: Option<u32>, created_at: Timestamp) -> Self {
        Self { version, round, parent: Some(self.version), created_at, ..self.clone() }
    }

    /// The earlier version that this one repeats, if any; other versions are trained from their predecessor.
    #[must_use]
    pub fn restored_from(&self) -> Option<u32> {
        self.parent.filter(|parent| parent.saturating_add(1) != self.version)
    }
}
