//! Tasks and their status history.

use federation::event::{EventKind, Fact, Subject};
use federation::id::{RoundKey, TaskId};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use task_spec::TaskSpec;

use crate::entity::token::TaskScope;
use crate::error::Result;
use crate::transaction::Transaction;

#[derive(Clone, Debug, PartialEq)]
pub struct TaskRow {
    pub id: TaskId,
    /// As the operator wrote it; immutable.
    pub spec: TaskSpec,
    pub status: TaskStatus,
    /// Length of the flat vector, without personal tensors.
    pub parameters: u64,
    pub created_at: Timestamp,
    /// Number of rounds that published a model version.
    pub rounds_completed: u32,
    /// Number of rounds without a version whose numbers stay unused: masked inputs may have been sent, or updates must
    /// be rounds apart.
    pub rounds_forfeited: u32,
    pub model_version: u32,
    /// The version that an operator has chosen to be used.
    pub promoted_version: Option<u32>,
}

/// A status that a task entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskChange {
    pub status: TaskStatus,
    pub at: Timestamp,
    /// The actor or the reason, for people.
    pub detail: Option<String>,
}

columns!(TaskRow {
    id,
    spec,
    status,
    parameters,
    created_at,
    rounds_completed,
    rounds_forfeited,
    model_version,
    promoted_version
});
columns!(TaskChange { status, at, detail });

/// Which tasks to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// Only those with one of these statuses; empty: with any.
    pub statuses: Vec<TaskStatus>,
    /// Only those that were created then or later.
    pub since: Option<Timestamp>,
    /// Only those of a token.
    pub scope: TaskScope,
}

impl TaskFilter {
    fn statuses(&self) -> &[TaskStatus] {
        if self.statuses.is_empty() { &TaskStatus::ALL } else { &self.statuses }
    }
}

/// The task of name `?1` that is not over, otherwise the newest of that name.
macro_rules! named_task {
    () => {
        "FROM task WHERE name = ?1 ORDER BY status IN ('ACTIVE', 'PAUSED') DESC, created_at DESC, id DESC LIMIT 1"
    };
}

impl TaskRow {
    /// Its next round: numbers of spent rounds are not used again.
    #[must_use]
    pub fn next_round(&self) -> RoundKey {
        let used = self.rounds_completed.saturating_add(self.rounds_forfeited);
        RoundKey { task: self.id, number: used.saturating_add(1) }
    }
}

impl Transaction<'_> {
    /// Stores a new task, its first history entry and an event.
    ///
    /// # Errors
    /// `Conflict` if the id exists, or if a task of that name is not over.
    pub async fn insert_task(&mut self, task: &TaskRow) -> Result<()> {
        self.must_change_one(
            "INSERT INTO task (id, name, spec, status, parameters, created_at, rounds_completed, rounds_forfeited,
                               model_version, promoted_version)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            (
                (task.id, &task.spec.name, &task.spec, task.status, task.parameters, task.created_at),
                (task.rounds_completed, task.rounds_forfeited, task.model_version, task.promoted_version),
            ),
        )
        .await?;
        let facts = [("name", task.spec.name.as_str().into())];
        self.note_event(task.created_at, EventKind::TaskCreated, Subject::Task(task.id), facts);
        self.add_task_change(task.id, task.status, task.created_at, None).await
    }

    pub async fn task(&mut self, id: TaskId) -> Result<Option<TaskRow>> {
        self.find("SELECT * FROM task WHERE id = ?1", id).await
    }

    /// The task of this name that is not over, otherwise the newest of that name.
    pub async fn task_by_name(&mut self, name: &str) -> Result<Option<TaskRow>> {
        self.find(concat!("SELECT * ", named_task!()), name).await
    }

    /// Every task, newest first.
    pub async fn tasks(&mut self, cursor: Option<TaskId>, limit: u32) -> Result<Vec<TaskRow>> {
        self.tasks_where(&TaskFilter::default(), cursor, limit).await
    }

    /// The tasks that a filter takes, newest first. The cursor need not be one that it takes.
    pub async fn tasks_where(
        &mut self,
        filter: &TaskFilter,
        cursor: Option<TaskId>,
        limit: u32,
    ) -> Result<Vec<TaskRow>> {
        let since = filter.since.unwrap_or(Timestamp(i64::MIN));
        match &filter.scope {
            TaskScope::All => {
                self.list(
                    "SELECT * FROM task
                     WHERE ((created_at, id) < (SELECT created_at, id FROM task WHERE id = ?1) OR ?1 IS NULL)
                       AND created_at >= ?3 AND status IN {?4 status:text}
                     ORDER BY created_at DESC, id DESC LIMIT ?2",
                    (cursor, limit, since, filter.statuses()),
                )
                .await
            }
            TaskScope::Only(tasks) if tasks.is_empty() => Ok(Vec::new()),
            TaskScope::Only(tasks) => {
                self.list(
                    "SELECT * FROM task
                     WHERE id IN {?5 id:bytes}
                       AND ((created_at, id) < (SELECT created_at, id FROM task WHERE id = ?1) OR ?1 IS NULL)
                       AND created_at >= ?3 AND status IN {?4 status:text}
                     ORDER BY created_at DESC, id DESC LIMIT ?2",
                    (cursor, limit, since, filter.statuses(), tasks),
                )
                .await
            }
        }
    }

    /// How many tasks have each status, for those that any has.
    pub async fn task_counts(&mut self) -> Result<Vec<(TaskStatus, u32)>> {
        self.list("SELECT status, count(*) FROM task GROUP BY status ORDER BY status", ()).await
    }

    /// Every task whose status is ACTIVE, oldest first.
    pub async fn active_tasks(&mut self) -> Result<Vec<TaskRow>> {
        self.list("SELECT * FROM task WHERE status = 'ACTIVE' ORDER BY created_at, id", ()).await
    }

    /// Every task that is not over, oldest first.
    pub async fn unfinished_tasks(&mut self) -> Result<Vec<TaskRow>> {
        let unfinished: Vec<_> = TaskStatus::ALL.into_iter().filter(|status| !status.is_terminal()).collect();
        self.list("SELECT * FROM task WHERE status IN {?1 status:text} ORDER BY created_at, id", unfinished).await
    }

    /// Changes the status if it is one of `from`, and writes history and an event; returns whether it did.
    pub async fn set_task_status(
        &mut self,
        id: TaskId,
        from: &[TaskStatus],
        to: TaskStatus,
        at: Timestamp,
        detail: Option<&str>,
    ) -> Result<bool> {
        let changed = self
            .change_one("UPDATE task SET status = ?2 WHERE id = ?1 AND status IN {?3 status:text}", (id, to, from))
            .await?;
        if changed {
            let kind = match to {
                TaskStatus::Active => EventKind::TaskResumed,
                TaskStatus::Paused => EventKind::TaskPaused,
                TaskStatus::Completed => EventKind::TaskCompleted,
                TaskStatus::Cancelled => EventKind::TaskCancelled,
                TaskStatus::BudgetExhausted => EventKind::TaskBudgetExhausted,
            };
            self.note_of_task(id, kind, at, detail);
            self.add_task_change(id, to, at, detail).await?;
        }
        Ok(changed)
    }

    /// Skips round numbers that participants have seen, and writes history and an event. False if the task's status is another.
    pub async fn rebase_task(
        &mut self,
        id: TaskId,
        status: TaskStatus,
        rounds: u32,
        at: Timestamp,
        detail: &str,
    ) -> Result<bool> {
        let changed = self
            .change_one(
                "UPDATE task SET rounds_forfeited = rounds_forfeited + ?3 WHERE id = ?1 AND status = ?2",
                (id, status, rounds),
            )
            .await?;
        if changed {
            self.note_of_task(id, EventKind::TaskRebased, at, Some(detail));
            self.add_task_change(id, status, at, Some(detail)).await?;
        }
        Ok(changed)
    }

    /// The status changes, oldest first.
    pub async fn task_history(&mut self, id: TaskId) -> Result<Vec<TaskChange>> {
        self.list("SELECT status, at, detail FROM task_change WHERE task = ?1 ORDER BY sequence", id).await
    }

    /// Records the progress of the task. Returns false if the task does not exist.
    pub async fn task_advanced(&mut self, id: TaskId, rounds_completed: u32, model_version: u32) -> Result<bool> {
        self.change_one(
            "UPDATE task SET rounds_completed = ?2, model_version = ?3 WHERE id = ?1",
            (id, rounds_completed, model_version),
        )
        .await
    }

    /// Chooses the version that is to be used, with an event. Returns false if the task does not exist.
    pub async fn promote_version(&mut self, id: TaskId, version: u32, at: Timestamp) -> Result<bool> {
        let changed = self.change_one("UPDATE task SET promoted_version = ?2 WHERE id = ?1", (id, version)).await?;
        if changed {
            self.note_event(at, EventKind::VersionPromoted, Subject::Task(id), [("version", version.into())]);
        }
        Ok(changed)
    }

    /// Adds to the number of rounds whose numbers stay unused. Returns false if the task does not exist.
    pub async fn forfeit_rounds(&mut self, id: TaskId, rounds: u32) -> Result<bool> {
        self.change_one("UPDATE task SET rounds_forfeited = rounds_forfeited + ?2 WHERE id = ?1", (id, rounds)).await
    }
}

impl Transaction<'_> {
    fn note_of_task(&mut self, id: TaskId, kind: EventKind, at: Timestamp, detail: Option<&str>) {
        match detail {
            Some(detail) => self.note_event(at, kind, Subject::Task(id), [("detail", Fact::from(detail))]),
            None => self.note_event(at, kind, Subject::Task(id), []),
        }
    }

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
