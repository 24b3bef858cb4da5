//! New entries of the audit log, read once for all who listen to them in this process.
//!
//! Nothing is read while nobody listens. Whoever listens reads for itself what came before, and whatever it was too slow for.

use std::sync::Arc;
use std::time::Duration;

use store::entity::event::EventFilter;
use store::{Store, StoreError, WakeEvent, WakeSubscription};
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::audit::Entry;

use crate::audit::entry;

/// Entries that are read at once.
const BATCH: u32 = 500;
/// Batches that a slow listener may be behind before it reads for itself.
const BEHIND_MAX: usize = 64;
/// How often the log is looked at although no wake-up came.
const POLL: Duration = Duration::from_secs(1);

/// Entries that follow each other.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The position before the first of them.
    pub(crate) after: u64,
    pub(crate) entries: Arc<[Entry]>,
}

/// Clones are the same feed.
#[derive(Clone)]
pub(crate) struct EventFeed {
    batches: broadcast::Sender<Batch>,
    joined: Arc<Notify>,
}

impl EventFeed {
    /// Follows the log until `stopped`.
    pub(crate) fn start(store: &Store, stopped: CancellationToken, tasks: &TaskTracker) -> Self {
        let feed = Self { batches: broadcast::Sender::new(BEHIND_MAX), joined: Arc::default() };
        let (follower, store) = (feed.clone(), store.clone());
        tasks.spawn(async move { stopped.run_until_cancelled(follower.follow(&store)).await });
        feed
    }

    /// Every batch from now on, of which the first says how far the log is. What is there already is not among them.
    pub(crate) fn listen(&self) -> broadcast::Receiver<Batch> {
        let batches = self.batches.subscribe();
        self.joined.notify_one();
        batches
    }

    async fn follow(&self, store: &Store) {
        loop {
            // Before it is known whether somebody listens, or whoever joins in between would wait in vain.
            let joined = self.joined.notified();
            if self.batches.receiver_count() == 0 {
                joined.await;
                continue;
            }
            let wakes = store.wake().subscribe();
            if let Err(error) = self.tell(store, wakes).await {
                tracing::warn!(%error, "the log of events cannot be read; trying again: {error}");
                tokio::time::sleep(POLL).await;
            }
        }
    }

    /// Tells of new entries while somebody listens.
    async fn tell(&self, store: &Store, mut wakes: WakeSubscription) -> Result<(), StoreError> {
        let end = store.read("end of events", |tx| Box::pin(async move { tx.last_event().await })).await?;
        let mut after = end.map_or(0, |(position, _)| position);
        // Whoever listened before this was read may lack entries up to here.
        let mut batch = Batch { after, entries: Arc::from([]) };
        while self.batches.send(batch).is_ok() {
            let entries = loop {
                let rows = store.read("new events", |tx| {
                    Box::pin(async move { tx.events_after(after, &EventFilter::default(), BATCH).await })
                });
                let rows = rows.await?;
                if !rows.is_empty() || self.batches.receiver_count() == 0 {
                    break rows;
                }
                tokio::select! {
                    () = wakes.until(|event| *event == WakeEvent::Numbered) => {}
                    () = tokio::time::sleep(POLL) => {}
                }
            };
            batch = Batch { after, entries: entries.into_iter().map(entry).collect() };
            after = batch.entries.last().map_or(after, |entry| entry.position);
        }
        Ok(())
    }
}
