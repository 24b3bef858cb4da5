//! Tasks and the history of their status.

use async_trait::async_trait;
use federation::id::TaskId;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use task_spec::TaskSpec;

use crate::error::Result;

/// A task as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRow {
    /// The row's key.
    pub id: TaskId,
    /// What the operator wrote; never changes.
    pub spec: TaskSpec,
    /// Where the task stands.
    pub status: TaskStatus,
    /// Elements of the flat vector, personal tensors not counted.
    pub parameters: u64,
    /// When it was created.
    pub created_at: Timestamp,
    /// Rounds that published a model version.
    pub rounds_completed: u32,
    /// Rounds that ended without a version after masked inputs may have been sent, or updates that must be rounds apart: their
    /// numbers are not used again.
    pub rounds_forfeited: u32,
    /// The newest model version.
    pub model_version: u32,
}

/// One change of a task's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskChange {
    /// The status that began.
    pub status: TaskStatus,
    /// When.
    pub at: Timestamp,
    /// Who or why, for people.
    pub detail: Option<String>,
}

/// Reads and changes tasks.
#[async_trait]
pub trait Tasks {
    /// Stores a new task and the first line of its history.
    ///
    /// # Errors
    /// `Conflict` if the id exists, or if a task of that name is not over.
    async fn insert_task(&mut self, task: &TaskRow) -> Result<()>;

    /// The task with this id.
    async fn task(&mut self, id: TaskId) -> Result<Option<TaskRow>>;

    /// The task of this name that is not over, else the newest of that name.
    async fn task_by_name(&mut self, name: &str) -> Result<Option<TaskRow>>;

    /// Tasks, newest first.
    async fn tasks(&mut self, cursor: Option<TaskId>, limit: u32) -> Result<Vec<TaskRow>>;

    /// Every task whose status is ACTIVE, oldest first.
    async fn active_tasks(&mut self) -> Result<Vec<TaskRow>>;

    /// Every task that is not over, oldest first.
    async fn unfinished_tasks(&mut self) -> Result<Vec<TaskRow>>;

    /// Changes the status if it is one of `from` now, and writes history. False if it was not.
    async fn set_task_status(
        &mut self,
        id: TaskId,
        from: &[TaskStatus],
        to: TaskStatus,
        at: Timestamp,
        detail: Option<&str>,
    ) -> Result<bool>;

    /// Every change of status, oldest first.
    async fn task_history(&mut self, id: TaskId) -> Result<Vec<TaskChange>>;

    /// Records how far the task has come. False if there is no such task.
    async fn task_advanced(&mut self, id: TaskId, rounds_completed: u32, model_version: u32) -> Result<bool>;

    /// Counts so many more rounds whose numbers are not used again. False if there is no such task.
    async fn forfeit_rounds(&mut self, id: TaskId, rounds: u32) -> Result<bool>;
}
