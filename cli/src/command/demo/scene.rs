//! Data shared by all parts of the demo.

use std::sync::Arc;

use client_sdk::models::Architecture;
use datasets::Dataset;
use task_spec::TrainingPlan;

use crate::failure::{Exit, Failure, Outcome};
use crate::task_input::TaskInput;

/// Data, model and training of all participants.
pub(super) struct Scene {
    pub(super) shards: Vec<(Dataset, Dataset)>,
    /// Maximum number of training examples of a participant.
    pub(super) most_examples: usize,
    /// The task's settings, and the model's architecture.
    pub(super) input: TaskInput,
    pub(super) test: Arc<Dataset>,
    pub(super) architecture: Architecture,
    pub(super) training: TrainingPlan,
    pub(super) description: String,
    pub(super) seed: u64,
    /// Participants that train at once.
    pub(super) threads: usize,
}

/// Runs a computation on a blocking thread.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Outcome<T> + Send + 'static) -> Outcome<T> {
    tokio::task::spawn_blocking(work).await.map_err(Failure::because(Exit::Internal, "a computation ended badly"))?
}
