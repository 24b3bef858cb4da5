//! Tasks in SQLite.

use async_trait::async_trait;
use federation::id::TaskId;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _, each, integer, json, json_names};
use super::statement::{SqliteRow, query};
use crate::entity::task::{TaskChange, TaskRow, Tasks};
use crate::error::Result;

#[async_trait]
impl Tasks for SqliteTransaction {
    async fn insert_task(&mut self, task: &TaskRow) -> Result<()> {
        self.insert(
            query(
                "INSERT INTO task (id, name, spec, status, parameters, created_at, rounds_completed, rounds_forfeited,
                                   model_version)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )
            .bind(task.id.0)
            .bind(&task.spec.name)
            .bind(json(&task.spec)?)
            .bind(task.status.as_str())
            .bind(integer(task.parameters)?)
            .time(task.created_at)
            .bind(task.rounds_completed)
            .bind(task.rounds_forfeited)
            .bind(task.model_version),
        )
        .await?;
        self.add_task_change(task.id, task.status, task.created_at, None).await
    }

    async fn task(&mut self, id: TaskId) -> Result<Option<TaskRow>> {
        self.find(query("SELECT * FROM task WHERE id = ?1").bind(id.0)).await?.as_ref().map(read).transpose()
    }

    async fn task_by_name(&mut self, name: &str) -> Result<Option<TaskRow>> {
        let row = self
            .find(
                query(
                    "SELECT * FROM task WHERE name = ?1
                     ORDER BY status IN ('ACTIVE', 'PAUSED') DESC, created_at DESC, id DESC LIMIT 1",
                )
                .bind(name),
            )
            .await?;
        row.as_ref().map(read).transpose()
    }

    async fn tasks(&mut self, cursor: Option<TaskId>, limit: u32) -> Result<Vec<TaskRow>> {
        let rows = self
            .list(
                query(
                    "SELECT * FROM task
                     WHERE ?1 IS NULL OR (created_at, id) < (SELECT created_at, id FROM task WHERE id = ?1)
                     ORDER BY created_at DESC, id DESC LIMIT ?2",
                )
                .bind(cursor.map(|id| id.0))
                .bind(limit),
            )
            .await?;
        each(&rows, read)
    }

    async fn active_tasks(&mut self) -> Result<Vec<TaskRow>> {
        let rows = self.list(query("SELECT * FROM task WHERE status = 'ACTIVE' ORDER BY created_at, id")).await?;
        each(&rows, read)
    }

    async fn unfinished_tasks(&mut self) -> Result<Vec<TaskRow>> {
        let unfinished: Vec<_> = TaskStatus::ALL.into_iter().filter(|status| !status.is_terminal()).collect();
        let rows = self
            .list(
                query("SELECT * FROM task WHERE status IN (SELECT value FROM json_each(?1)) ORDER BY created_at, id")
                    .bind(json_names(&unfinished)?),
            )
            .await?;
        each(&rows, read)
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
                query(
                    "UPDATE task SET status = ?2
                     WHERE id = ?1 AND status IN (SELECT value FROM json_each(?3))",
                )
                .bind(id.0)
                .bind(to.as_str())
                .bind(json_names(from)?),
            )
            .await?;
        if changed {
            self.add_task_change(id, to, at, detail).await?;
        }
        Ok(changed)
    }

    async fn task_history(&mut self, id: TaskId) -> Result<Vec<TaskChange>> {
        let rows = self
            .list(query("SELECT status, at, detail FROM task_change WHERE task = ?1 ORDER BY sequence").bind(id.0))
            .await?;
        each(&rows, |row| {
            Ok(TaskChange { status: row.named("status")?, at: row.time("at")?, detail: row.optional_text("detail")? })
        })
    }

    async fn task_advanced(&mut self, id: TaskId, rounds_completed: u32, model_version: u32) -> Result<bool> {
        self.change_one(
            query("UPDATE task SET rounds_completed = ?2, model_version = ?3 WHERE id = ?1")
                .bind(id.0)
                .bind(rounds_completed)
                .bind(model_version),
        )
        .await
    }

    async fn forfeit_rounds(&mut self, id: TaskId, rounds: u32) -> Result<bool> {
        self.change_one(
            query("UPDATE task SET rounds_forfeited = rounds_forfeited + ?2 WHERE id = ?1").bind(id.0).bind(rounds),
        )
        .await
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
        self.insert(
            query("INSERT INTO task_change (task, status, at, detail) VALUES (?1, ?2, ?3, ?4)")
                .bind(id.0)
                .bind(status.as_str())
                .time(at)
                .bind(detail),
        )
        .await
    }
}

fn read(row: &SqliteRow) -> Result<TaskRow> {
    Ok(TaskRow {
        id: TaskId(row.uuid("id")?),
        spec: row.json("spec")?,
        status: row.named("status")?,
        parameters: row.large("parameters")?,
        created_at: row.time("created_at")?,
        rounds_completed: row.small("rounds_completed")?,
        rounds_forfeited: row.small("rounds_forfeited")?,
        model_version: row.small("model_version")?,
    })
}
