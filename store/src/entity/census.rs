//! How much there is of everything, for gauges: counted from indexes, except for the bytes of models, whose rows are read.

use federation::task_status::TaskStatus;

use crate::error::Result;
use crate::transaction::Transaction;

/// How much there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Tasks by status, each status once.
    pub tasks: Vec<(TaskStatus, u64)>,
    /// Rounds that have not ended.
    pub open_rounds: u64,
    /// Participants that are enrolled and not revoked.
    pub participants: u64,
    /// Size of the files of model versions that are kept, one copy of each.
    pub model_bytes: u64,
}

impl Transaction<'_> {
    /// Counts the rows of each kind.
    pub async fn census(&mut self) -> Result<Census> {
        let mut tasks = Vec::with_capacity(TaskStatus::ALL.len());
        for status in TaskStatus::ALL {
            tasks.push((status, self.get("SELECT count(*) FROM task WHERE status = ?1", status).await?));
        }
        let open = "SELECT count(*) FROM round WHERE state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')";
        let bytes = "SELECT CAST(coalesce(sum(bytes), 0) AS bigint) FROM model_version WHERE removed_at IS NULL";
        Ok(Census {
            tasks,
            open_rounds: self.get(open, ()).await?,
            participants: self.get("SELECT count(*) FROM participant WHERE revoked_at IS NULL", ()).await?,
            model_bytes: self.get(bytes, ()).await?,
        })
    }
}
