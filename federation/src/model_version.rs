//! Model versions: what a task has published, and where each came from.

use serde::{Deserialize, Serialize};

use crate::id::{Digest, TaskId};
use crate::time::Timestamp;

/// One published set of parameters. Version 0 is the initial model, version `n` is what round `n` made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelVersion {
    /// The task it belongs to.
    pub task: TaskId,
    /// Counts from 0.
    pub version: u32,
    /// Of the safetensors file; also the blob's address.
    pub sha256: Digest,
    /// Size of the safetensors file.
    pub bytes: u64,
    /// The round that made it; none for version 0.
    pub round: Option<u32>,
    /// The version it was made from.
    pub parent: Option<u32>,
    /// Clipping norm of the rounds that start from it, finite and above 0; none without a privacy mechanism.
    pub clip: Option<f64>,
    /// The blob of what the server optimizer goes on from; none for version 0 and for an optimizer without memory.
    pub optimizer_state: Option<Digest>,
    /// When it was published.
    pub created_at: Timestamp,
}
