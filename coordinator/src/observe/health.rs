//! Whether rows and blobs can be written, and whether what is stored is what was stored.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use federation::time::Timestamp;
use store::{Store, StoreError};
use uuid::Uuid;
use wire::inspect::BehindView;

use crate::guarded::Guarded;
use crate::reported_rounds::ReportedRounds;

/// The whole database is read this often at most: that takes as long as its size demands.
const READ_EVERY: Duration = Duration::from_secs(60);
/// Whoever asks within this time is answered as who asked before: everybody may ask, and looking writes.
const ANSWER_HOLDS: Duration = Duration::from_secs(1);
/// The lease that a probe takes and gives back.
const PROBE: &str = "readiness";

/// What is wrong with tasks that others do not depend on, or why nothing can be served.
type Found = Result<Vec<String>, NotReady>;

/// What is asked for whenever somebody wants to know whether the service is ready.
#[derive(Default)]
pub(crate) struct Health {
    /// When somebody looked last, and what was found. Whoever asks meanwhile waits for that.
    latest: tokio::sync::Mutex<Option<(Timestamp, Found)>>,
    /// When the database was read last, and whether it was well-formed.
    database: Guarded<Option<(Timestamp, bool)>>,
}

/// Why the service cannot serve at all.
#[derive(Clone)]
pub(crate) enum NotReady {
    /// The database is malformed; the log says how.
    Malformed,
    /// Rows or blobs cannot be written.
    Unwritable(&'static str, Arc<StoreError>),
}

impl Health {
    /// Tries to write both, and leaves nothing behind; what was found less than a second ago is told again instead. It is true of
    /// tasks that others do not depend on: those that cannot go on, and why.
    ///
    /// # Errors
    /// [`NotReady`].
    pub(crate) async fn check(&self, store: &Store, behind: &ReportedRounds, now: impl Fn() -> Timestamp) -> Found {
        let mut latest = self.latest.lock().await;
        let asked = now();
        if let Some((at, found)) = &*latest
            && *at <= asked
            && asked.since(*at) < ANSWER_HOLDS
        {
            return found.clone();
        }
        let found = self.look(store, behind, asked).await;
        *latest = Some((now(), found.clone()));
        found
    }

    async fn look(&self, store: &Store, behind: &ReportedRounds, now: Timestamp) -> Found {
        if !self.is_well_formed(store, now).await? {
            return Err(NotReady::Malformed);
        }
        let rows = |error| NotReady::Unwritable("the database", Arc::new(error));
        // A lease that is given back before anybody can see it. A change that finds no row would write nothing.
        let probe = store.transact("readiness", |tx| {
            Box::pin(async move {
                tx.acquire_lease(PROBE, Uuid::nil(), now, READ_EVERY).await?;
                tx.release_lease(PROBE, Uuid::nil()).await
            })
        });
        probe.await.map_err(rows)?;
        let blobs = |error| NotReady::Unwritable("the folder of blobs", Arc::new(error));
        let probe = Bytes::from_static(b"tributary readiness probe\n");
        let digest = store.blobs().put_bytes(probe).await.map_err(blobs)?;
        store.blobs().delete(digest).await.map_err(blobs)?;
        let tasks = store.read("unfinished_tasks", |tx| Box::pin(async move { tx.unfinished_tasks().await }));
        let tasks = tasks.await.map_err(rows)?;
        let damaged = crate::damage::survey(store, &tasks).await.map_err(rows)?;
        let damaged = damaged.into_iter().map(|(task, problem)| format!("task {task}: {problem}"));
        let behind = tasks.iter().filter_map(|task| behind.of(task).map(|view| (task.id, view)));
        let behind = behind.map(|(task, BehindView { participants, next_round, seen_round })| {
            format!(
                "task {task}: {participants} participants have sent inputs for rounds up to {seen_round}, so they take no part in \
                 round {next_round}; was the database restored? `tributary task rebase {task}` goes on beyond them"
            )
        });
        Ok(damaged.chain(behind).collect())
    }

    async fn is_well_formed(&self, store: &Store, now: Timestamp) -> Result<bool, NotReady> {
        if let Some((at, well_formed)) = *self.database.lock()
            && at <= now
            && now.since(at) < READ_EVERY
        {
            return Ok(well_formed);
        }
        let well_formed = match store.check().await {
            Ok(()) => true,
            Err(error @ StoreError::Corrupt(_)) => {
                tracing::error!(%error, "the database is malformed: {error}");
                false
            }
            Err(error) => return Err(NotReady::Unwritable("the database", Arc::new(error))),
        };
        *self.database.lock() = Some((now, well_formed));
        Ok(well_formed)
    }
}
