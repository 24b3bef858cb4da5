//! The reasons why tasks wait, read once a second for all their participants.

use std::collections::HashMap;
use std::time::Duration;

use federation::id::TaskId;
use federation::time::Timestamp;
use listener::PoisonFreeMutex;
use store::{Store, StoreError};
use wire::inspect::TaskWaitingFor;

use crate::rounds::waiting::retries::Retries;
use crate::rounds::waiting::shortage::shortage;
use crate::rounds::waiting::waiting_for::waiting_for;

/// Time for which the result for one participant is reused for others.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// The reasons why tasks wait, at most a second old. All participants of a task share the result, instead of a count for each of them.
#[derive(Default)]
pub(crate) struct WaitingForCache(PoisonFreeMutex<HashMap<TaskId, (Timestamp, TaskWaitingFor)>>);

impl WaitingForCache {
    /// The reason why a task waits. For a stopped task, `since` is the creation time, hidden from participants.
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
