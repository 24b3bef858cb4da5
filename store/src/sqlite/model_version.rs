//! Model versions in SQLite.

use async_trait::async_trait;
use federation::id::TaskId;
use federation::model_version::ModelVersion;

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _, each, integer};
use super::statement::{SqliteRow, query};
use crate::entity::model_version::ModelVersions;
use crate::error::{Result, StoreError};

#[async_trait]
impl ModelVersions for SqliteTransaction {
    async fn insert_model_version(&mut self, version: &ModelVersion) -> Result<()> {
        // SQLite would store a NaN as NULL, as if the version had no norm.
        if let Some(clip) = version.clip.filter(|clip| clip.is_nan()) {
            return Err(StoreError::Conflict(format!("a clipping norm of {clip}: it must be above 0")));
        }
        self.insert(
            query(
                "INSERT INTO model_version (task, version, sha256, bytes, round, parent, clip, created_at,
                                            optimizer_state)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )
            .bind(version.task.0)
            .bind(version.version)
            .digest(version.sha256)
            .bind(integer(version.bytes)?)
            .bind(version.round)
            .bind(version.parent)
            .bind(version.clip)
            .time(version.created_at)
            .bind(version.optimizer_state.map(|digest| digest.0.to_vec())),
        )
        .await
    }

    async fn model_version(&mut self, task: TaskId, version: u32) -> Result<Option<ModelVersion>> {
        let row = self
            .find(query("SELECT * FROM model_version WHERE task = ?1 AND version = ?2").bind(task.0).bind(version))
            .await?;
        row.as_ref().map(read).transpose()
    }

    async fn latest_model_version(&mut self, task: TaskId) -> Result<Option<ModelVersion>> {
        Ok(self.model_versions(task, None, 1).await?.pop())
    }

    async fn model_versions(&mut self, task: TaskId, before: Option<u32>, limit: u32) -> Result<Vec<ModelVersion>> {
        let rows = self
            .list(
                query(
                    "SELECT * FROM model_version WHERE task = ?1 AND version < coalesce(?2, 1 << 62)
                     ORDER BY version DESC LIMIT ?3",
                )
                .bind(task.0)
                .bind(before)
                .bind(limit),
            )
            .await?;
        each(&rows, read)
    }
}

fn read(row: &SqliteRow) -> Result<ModelVersion> {
    Ok(ModelVersion {
        task: TaskId(row.uuid("task")?),
        version: row.small("version")?,
        sha256: row.digest("sha256")?,
        bytes: row.large("bytes")?,
        round: row.optional_small("round")?,
        parent: row.optional_small("parent")?,
        clip: row.optional_real("clip")?,
        optimizer_state: row.optional_digest("optimizer_state")?,
        created_at: row.time("created_at")?,
    })
}
