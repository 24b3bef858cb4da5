//! Model versions: the published models of tasks. Rows never change.

use federation::id::TaskId;
use federation::model_version::ModelVersion;

use crate::driver::Before;
use crate::error::{Result, StoreError};
use crate::transaction::Transaction;

record!(
    "model_version",
    ModelVersion { task, version, sha256, bytes, round, parent, clip, created_at, optimizer_state }
);

impl Transaction<'_> {
    /// Stores a new version.
    ///
    /// # Errors
    /// `Conflict` if the version exists, the task does not, or the clipping norm is not finite and above 0; `BeingRemoved`.
    pub async fn insert_model_version(&mut self, version: &ModelVersion) -> Result<()> {
        // SQLite would store a NaN as NULL, as if the version had no norm.
        if let Some(clip) = version.clip.filter(|clip| clip.is_nan()) {
            return Err(StoreError::Conflict(format!("a clipping norm of {clip}: it must be above 0")));
        }
        self.must_not_be_doomed(version.sha256).await?;
        if let Some(state) = version.optimizer_state {
            self.must_not_be_doomed(state).await?;
        }
        self.insert(version).await
    }

    pub async fn model_version(&mut self, task: TaskId, version: u32) -> Result<Option<ModelVersion>> {
        self.find("SELECT * FROM model_version WHERE task = ?1 AND version = ?2", (task, version)).await
    }

    pub async fn latest_model_version(&mut self, task: TaskId) -> Result<Option<ModelVersion>> {
        Ok(self.model_versions(task, None, 1).await?.pop())
    }

    /// Versions below `before`, newest first.
    pub async fn model_versions(&mut self, task: TaskId, before: Option<u32>, limit: u32) -> Result<Vec<ModelVersion>> {
        self.list(
            "SELECT * FROM model_version WHERE task = ?1 AND version < ?2
             ORDER BY version DESC LIMIT ?3",
            (task, Before(before), limit),
        )
        .await
    }
}
