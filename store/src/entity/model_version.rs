//! Model versions: the published models of tasks. Rows never change.

use async_trait::async_trait;
use federation::id::TaskId;
use federation::model_version::ModelVersion;

use crate::error::Result;

/// Reads and adds model versions.
#[async_trait]
pub trait ModelVersions {
    /// Stores a new version.
    ///
    /// # Errors
    /// `Conflict` if the version exists, the task does not, or the clipping norm is not finite and above 0.
    async fn insert_model_version(&mut self, version: &ModelVersion) -> Result<()>;

    async fn model_version(&mut self, task: TaskId, version: u32) -> Result<Option<ModelVersion>>;

    async fn latest_model_version(&mut self, task: TaskId) -> Result<Option<ModelVersion>>;

    /// Versions below `before`, newest first.
    async fn model_versions(&mut self, task: TaskId, before: Option<u32>, limit: u32) -> Result<Vec<ModelVersion>>;
}
