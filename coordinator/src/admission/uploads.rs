//! Limits each participant to one upload at a time: otherwise it could fill the disk with inputs of which at most one is included.
//!
//! The latest wins: after losing its connection, a participant sends again long before the old upload times out.

use std::collections::HashMap;
use std::sync::Arc;

use federation::id::ParticipantId;
use listener::PoisonFreeMutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Uploads in progress. Clones share them.
#[derive(Clone)]
pub(crate) struct Uploads {
    running: Arc<PoisonFreeMutex<LatestUploads>>,
    /// Permits to hold a whole upload in memory.
    judge: Arc<Semaphore>,
    /// Permits to validate a stored upload piece by piece.
    by_pieces: Arc<Semaphore>,
}

/// Maximum threads validating stored uploads piece by piece; each may wait for a disk or a network. Statements need threads of the same
/// runtime.
const JUDGED_BY_PIECES: usize = 16;

impl Default for Uploads {
    fn default() -> Self {
        let permits = |permits| Arc::new(Semaphore::new(permits));
        Self { running: Arc::default(), judge: permits(1), by_pieces: permits(JUDGED_BY_PIECES) }
    }
}

#[derive(Default)]
struct LatestUploads {
    begun: u64,
    latest: HashMap<ParticipantId, (u64, CancellationToken)>,
}

/// An upload in progress; it ends when dropped.
pub(crate) struct UploadGuard {
    uploads: Uploads,
    participant: ParticipantId,
    number: u64,
    ended: CancellationToken,
}

impl Uploads {
    /// Starts an upload, and ends the participant's upload in progress, if any.
    #[must_use]
    pub(crate) fn begin(&self, participant: ParticipantId) -> UploadGuard {
        let ended = CancellationToken::new();
        let (number, earlier) = self.running.with(|running| {
            running.begun += 1;
            (running.begun, running.latest.insert(participant, (running.begun, ended.clone())))
        });
        if let Some((_, earlier)) = earlier {
            earlier.cancel();
        }
        UploadGuard { uploads: self.clone(), participant, number, ended }
    }

    /// Waits in turn for a permit to hold one whole upload in memory; released when dropped.
    pub(crate) async fn judge(&self) -> Option<OwnedSemaphorePermit> {
        // `None` only if closed, which never happens.
        Arc::clone(&self.judge).acquire_owned().await.ok()
    }

    /// Waits in turn for a permit to validate a stored upload piece by piece; released when dropped.
    pub(crate) async fn judge_by_pieces(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.by_pieces).acquire_owned().await.ok()
    }
}

impl UploadGuard {
    /// Resolves when a later upload has started.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

impl Drop for UploadGuard {
    fn drop(&mut self) {
        self.uploads.running.with(|running| {
            if running.latest.get(&self.participant).is_some_and(|(number, _)| *number == self.number) {
                running.latest.remove(&self.participant);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_each_participant_goes_on() {
        let uploads = Uploads::default();
        let who = |n| ParticipantId(uuid::Uuid::from_u128(n));
        let (first, other) = (uploads.begin(who(1)), uploads.begin(who(2)));
        let second = uploads.begin(who(1));
        assert!(first.ended.is_cancelled());
        drop(first);
        let third = uploads.begin(who(1));
        assert!(second.ended.is_cancelled() && !third.ended.is_cancelled() && !other.ended.is_cancelled());
        drop((second, third, other));
        assert!(uploads.running.with(|running| running.latest.is_empty()));
    }
}
