//! What tasks wait for, read once a second for all participants that wait with them.

use std::collections::HashMap;
use std::time::Duration;

use federation::id::TaskId;
use federation::time::Timestamp;
use store::{Store, StoreError};
use wire::inspect::TaskWaitingFor;

use crate::guarded::Guarded;
use crate::retries::Retries;
use crate::shortage::shortage;
use crate::waiting_for::waiting_for;

/// How long what was read for one participant is also told to others.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// What tasks wait for, as read within the last second: all who wait for a task get the same answer, so that participants are not counted
/// for each of them.
#[derive(Default)]
pub(crate) struct Lacking(Guarded<HashMap<TaskId, (Timestamp, TaskWaitingFor)>>);

impl Lacking {
    /// What a task waits for. For a stopped task `since` is when the task was created, which participants are not told.
    ///
    /// # Errors
    /// [`StoreError`]: the store cannot be read.
    pub(crate) async fn of(
        &self,
        store: &Store,
        retries: Retries,
        task: TaskId,
        now: Timestamp,
    ) -> Result<TaskWaitingFor, StoreError> {
        let is_known = |at: Timestamp| at <= now && now < at.plus(KNOWN_FOR);
        if let Some(&(at, known)) = self.0.lock().get(&task)
            && is_known(at)
        {
            return Ok(known);
        }
        let read = store.read("lacking", |tx| {
            Box::pin(async move {
                let Some(row) = tx.task(task).await? else { return Ok(TaskWaitingFor::Nothing) };
                let latest = tx.round(row.next_round()).await?;
                let shortage = shortage(tx, &row, latest.as_ref().map(|row| &row.round), now).await?;
                waiting_for(tx, &row, row.created_at, latest.as_ref(), shortage.as_ref(), retries, now).await
            })
        });
        let found = read.await?;
        let mut known = self.0.lock();
        known.retain(|_, (at, _)| is_known(*at));
        known.insert(task, (now, found));
        Ok(found)
    }
}
