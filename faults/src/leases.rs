//! Checks that only the latest holder of a task's lease changes its rounds.
//!
//! Coordinators are called one at a time, so a token that grew during a call was drawn by the coordinator that was called, and a
//! round that changed during a call was changed by it.

use federation::id::TaskId;
use store::{Pulse, Store, StoreError};

use super::outcome::{Broken, Check};

/// The task's lease and work as they were after the last call.
#[derive(Default)]
pub(super) struct LeaseWatch {
    /// Durable changes of all coordinators until then.
    made: u64,
    /// `None` before the lease was taken for the first time.
    token: Option<u64>,
    pulse: Option<Pulse>,
    /// The coordinator that drew the last token.
    taker: Option<usize>,
}

impl LeaseWatch {
    /// The last token of the task's lease.
    pub(super) fn token(&self) -> Option<u64> {
        self.token
    }

    /// Checks a call of this coordinator that has ended, or hangs, when all coordinators have made `made` durable
    /// changes: it must have changed rows only under its lease. An operator's cancellation works without a lease.
    pub(super) async fn was_called(
        &mut self,
        coordinator: usize,
        made: u64,
        task: TaskId,
        rows: &Store,
    ) -> Result<(), Broken> {
        if std::mem::replace(&mut self.made, made) == made {
            return Ok(());
        }
        let read = rows.read("lease and pulse", |tx| {
            Box::pin(async move {
                let token = tx.lease_token(&format!("round:{task}")).await?;
                Ok::<_, StoreError>((token, tx.pulse(task).await?))
            })
        });
        let (token, pulse) = read.await.map_err(|error| (Check::Errors, format!("rows cannot be read: {error}")))?;
        if token != self.token {
            (self.token, self.taker) = (token, Some(coordinator));
        }
        let Some(((before, after), taker)) = self.pulse.zip(pulse).zip(self.taker) else {
            self.pulse = pulse;
            return Ok(());
        };
        self.pulse = pulse;
        if taker == coordinator || work(&before) == work(&after) || before.cancelled != after.cancelled {
            return Ok(());
        }
        let detail =
            format!("coordinator {coordinator} changed {before:?} to {after:?}; coordinator {taker} has the lease");
        Err((Check::Leases, detail))
    }
}

/// The counts that only background work changes.
fn work(pulse: &Pulse) -> (u32, u32, u32, u32) {
    (pulse.versions, pulse.transitions, pulse.folded, pulse.released)
}
