//! Tasks and their status history.

use async_trait::async_trait;
use federation::id::TaskId;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use task_spec::TaskSpec;

use crate::error::Result;

#[derive(Clone, Debug, PartialEq)]
pub struct TaskRow {
    pub id: TaskId,
    /// As the operator wrote it; never changes.
    pub spec: TaskSpec,
    pub status: TaskStatus,
    /// Length of the flat vector, without personal tensors.
    pub parameters: u64,
    pub created_at: Timestamp,
    /// Number of rounds that published a model version.
    pub rounds_completed: u32,
    /// Number of rounds without a version whose numbers are not used again: masked inputs may have been sent, or
    /// updates must be rounds apart.
    pub rounds_forfeited: u32,
    pub model_version: u32,
}

/// A status that a task entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskChange {
    pub status: TaskStatus,
    pub at: Timestamp,
    /// Who or why, for people.
    pub detail: Option<String>,
}

/// Reads and changes tasks.
#[async_trait]
pub trait Tasks {
    /// Stores a new task and its first history entry.
    ///
    /// # Errors
    /// `Conflict` if the id exists, or if a task of that name is not over.
    async fn insert_task(&mut self, task: &TaskRow) -> Result<()>;

    async fn task(&mut self, id: TaskId) -> Result<Option<TaskRow>>;

    /// The task of this name that is not over, otherwise the newest of that name.
    async fn task_by_name(&mut self, name: &str) -> Result<Option<TaskRow>>;

    async fn tasks(&mut self, cursor: Option<TaskId>, limit: u32) -> Result<Vec<TaskRow>>;

    /// Every task whose status is ACTIVE, oldest first.
    async fn active_tasks(&mut self) -> Result<Vec<TaskRow>>;

    /// Every task that is not over, oldest first.
    async fn unfinished_tasks(&mut self) -> Result<Vec<TaskRow>>;

    /// Changes the status if it is one of `from`, and writes history; returns whether it did.
    async fn set_task_status(
        &mut self,
        id: TaskId,
        from: &[TaskStatus],
        to: TaskStatus,
        at: Timestamp,
        detail: Option<&str>,
    ) -> Result<bool>;

    /// The status changes, oldest first.
    async fn task_history(&mut self, id: TaskId) -> Result<Vec<TaskChange>>;

    /// Records the progress of the task. False if there is no such task.
    async fn task_advanced(&mut self, id: TaskId, rounds_completed: u32, model_version: u32) -> Result<bool>;

    /// Adds to the number of rounds whose numbers are not used again. False if there is no such task.
    async fn forfeit_rounds(&mut self, id: TaskId, rounds: u32) -> Result<bool>;
}
