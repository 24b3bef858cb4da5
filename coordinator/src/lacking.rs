//! What the next round of a task lacks, read once a second for all participants that wait for it.

use std::collections::HashMap;
use std::time::Duration;

use federation::id::TaskId;
use federation::round::Round;
use federation::time::Timestamp;
use store::{Store, StoreError};
use wire::inspect::TaskWaitingFor;

use crate::guarded::Guarded;
use crate::retries::Retries;
use crate::shortage::{missing, shortage};
use crate::waiting_for::next_round;

/// How long what was read for one participant is also told to others.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// What the next round of a task lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// More participants have to check in.
    Participants {
        /// How many; at least 1.
        more: u32,
        /// When the attempt that selects them ends without them; `None` if none does.
        until: Option<Timestamp>,
    },
    /// It lacks no participants.
    Nothing {
        /// When it opens at the earliest; `None` if it is open, or may open now.
        at: Option<Timestamp>,
    },
}

/// What the next rounds of tasks lack, as read within the last second: all who wait for a task get the same answer, so that
/// participants are not counted for each of them.
#[derive(Default)]
pub(crate) struct Lacking(Guarded<HashMap<TaskId, (Timestamp, Lack)>>);

impl Lacking {
    /// What the next round of an active task lacks.
    ///
    /// # Errors
    /// [`StoreError`]: the store cannot be read.
    pub(crate) async fn of(
        &self,
        store: &Store,
        retries: Retries,
        task: TaskId,
        now: Timestamp,
    ) -> Result<Lack, StoreError> {
        let is_known = |at: Timestamp| at <= now && now < at.plus(KNOWN_FOR);
        if let Some(&(at, lack)) = self.0.lock().get(&task)
            && is_known(at)
        {
            return Ok(lack);
        }
        let read = store.read("lacking", |tx| {
            Box::pin(async move {
                let Some(row) = tx.task(task).await? else { return Ok(Lack::Nothing { at: None }) };
                let latest = tx.round(row.next_round()).await?;
                let round = latest.as_ref().map(|row| &row.round);
                let until = round.and_then(Round::deadline_at);
                if let Some(shortage) = shortage(tx, &row, round, now).await? {
                    return Ok(Lack::Participants { more: missing(&shortage), until });
                }
                if until.is_some() {
                    return Ok(Lack::Nothing { at: None });
                }
                Ok::<_, StoreError>(match next_round(tx, &row, latest.as_ref(), retries, now).await? {
                    TaskWaitingFor::Round { at, .. } => Lack::Nothing { at },
                    TaskWaitingFor::Nothing
                    | TaskWaitingFor::Operator { .. }
                    | TaskWaitingFor::Participants { .. }
                    | TaskWaitingFor::Phase { .. }
                    | TaskWaitingFor::Updates { .. }
                    | TaskWaitingFor::Other => Lack::Nothing { at: None },
                })
            })
        });
        let lack = read.await?;
        let mut known = self.0.lock();
        known.retain(|_, (at, _)| is_known(*at));
        known.insert(task, (now, lack));
        Ok(lack)
    }
}
