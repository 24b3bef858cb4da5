//! Tasks in SQLite.

use async_trait::async_trait;
use federation::id::TaskId;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;

use super::SqliteTransaction;
use crate::entity::task::{TaskChange, TaskRow, Tasks};
use crate::error::Result;

columns!(TaskRow { id, spec, status, parameters, created_at, rounds_completed, rounds_forfeited, model_version });
columns!(TaskChange { status, at, detail });

#[async_trait]
impl Tasks for SqliteTransaction {
    async fn insert_task(&mut self, task: &TaskRow) -> Result<()> {
        self.must_change_one(
            "INSERT INTO task (id, name, spec, status, parameters, created_at, rounds_completed, rounds_forfeited,
                               model_version)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            (
                (task.id, &task.spec.name, &task.spec, task.status, task.parameters, task.created_at),
                (task.rounds_completed, task.rounds_forfeited, task.model_version),
            ),
        )
        .await?;
        self.add_task_change(task.id, task.status, task.created_at, None).await
    }

    async fn task(&mut self, id: TaskId) -> Result<Option<TaskRow>> {
        self.find("SELECT * FROM task WHERE id = ?1", id).await
    }

    async fn task_by_name(&mut self, name: &str) -> Result<Option<TaskRow>> {
        self.find(
            "SELECT * FROM task WHERE name = ?1
             ORDER BY status IN ('ACTIVE', 'PAUSED') DESC, created_at DESC, id DESC LIMIT 1",
            name,
        )
        .await
    }

    async fn tasks(&mut self, cursor: Option<TaskId>, limit: u32) -> Result<Vec<TaskRow>> {
        self.list(
            "SELECT * FROM task
             WHERE ?1 IS NULL OR (created_at, id) < (SELECT created_at, id FROM task WHERE id = ?1)
             ORDER BY created_at DESC, id DESC LIMIT ?2",
            (cursor, limit),
        )
        .await
    }

    async fn active_tasks(&mut self) -> Result<Vec<TaskRow>> {
        self.list("SELECT * FROM task WHERE status = 'ACTIVE' ORDER BY created_at, id", ()).await
    }

    async fn unfinished_tasks(&mut self) -> Result<Vec<TaskRow>> {
        let unfinished: Vec<_> = TaskStatus::ALL.into_iter().filter(|status| !status.is_terminal()).collect();
        self.list(
            "SELECT * FROM task WHERE status IN (SELECT value FROM json_each(?1)) ORDER BY created_at, id",
            &unfinished[..],
        )
        .await
    }

    async fn set_task_status(
        &mut self,
        id: TaskId,
        from: &[TaskStatus],
        to: TaskStatus,
        at: Timestamp,
        detail: Option<&str>,
    ) -> Result<bool> {
        let changed = self
            .change_one(
                "UPDATE task SET status = ?2 WHERE id = ?1 AND status IN (SELECT value FROM json_each(?3))",
                (id, to, from),
            )
            .await?;
        if changed {
            self.add_task_change(id, to, at, detail).await?;
        }
        Ok(changed)
    }

    async fn task_history(&mut self, id: TaskId) -> Result<Vec<TaskChange>> {
        self.list("SELECT status, at, detail FROM task_change WHERE task = ?1 ORDER BY sequence", id).await
    }

    async fn task_advanced(&mut self, id: TaskId, rounds_completed: u32, model_version: u32) -> Result<bool> {
        self.change_one(
            "UPDATE task SET rounds_completed = ?2, model_version = ?3 WHERE id = ?1",
            (id, rounds_completed, model_version),
        )
        .await
    }

    async fn forfeit_rounds(&mut self, id: TaskId, rounds: u32) -> Result<bool> {
        self.change_one("UPDATE task SET rounds_forfeited = rounds_forfeited + ?2 WHERE id = ?1", (id, rounds)).await
    }
}

impl SqliteTransaction {
    async fn add_task_change(
        &mut self,
        id: TaskId,
        status: TaskStatus,
        at: Timestamp,
        detail: Option<&str>,
    ) -> Result<()> {
        self.must_change_one(
            "INSERT INTO task_change (task, status, at, detail) VALUES (?1, ?2, ?3, ?4)",
            (id, status, at, detail),
        )
        .await
    }
}
