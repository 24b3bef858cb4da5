//! Model versions in SQLite.

use async_trait::async_trait;
use federation::id::TaskId;
use federation::model_version::ModelVersion;

use super::SqliteTransaction;
use crate::entity::model_version::ModelVersions;
use crate::error::{Result, StoreError};

record!(
    "model_version",
    ModelVersion { task, version, sha256, bytes, round, parent, clip, created_at, optimizer_state }
);

#[async_trait]
impl ModelVersions for SqliteTransaction {
    async fn insert_model_version(&mut self, version: &ModelVersion) -> Result<()> {
        // SQLite would store a NaN as NULL, as if the version had no norm.
        if let Some(clip) = version.clip.filter(|clip| clip.is_nan()) {
            return Err(StoreError::Conflict(format!("a clipping norm of {clip}: it must be above 0")));
        }
        self.insert(version).await
    }

    async fn model_version(&mut self, task: TaskId, version: u32) -> Result<Option<ModelVersion>> {
        self.find("SELECT * FROM model_version WHERE task = ?1 AND version = ?2", (task, version)).await
    }

    async fn latest_model_version(&mut self, task: TaskId) -> Result<Option<ModelVersion>> {
        Ok(self.model_versions(task, None, 1).await?.pop())
    }

    async fn model_versions(&mut self, task: TaskId, before: Option<u32>, limit: u32) -> Result<Vec<ModelVersion>> {
        self.list(
            "SELECT * FROM model_version WHERE task = ?1 AND version < coalesce(?2, 1 << 62)
             ORDER BY version DESC LIMIT ?3",
            (task, before, limit),
        )
        .await
    }
}
