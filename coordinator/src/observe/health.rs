//! Health: whether rows and blobs can be written, and whether stored data is intact.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use federation::time::Timestamp;
use store::{Store, StoreError};
use uuid::Uuid;
use wire::grammar::counted;
use wire::inspect::BehindView;

use crate::guarded::Guarded;
use crate::reported_rounds::behind;
use crate::seal::Sealer;

/// Minimum time between two reads of the whole database, which take as long as its size requires.
const READ_EVERY: Duration = Duration::from_secs(60);
/// A result is reused for this long: anybody may ask, and a probe writes.
const ANSWER_HOLDS: Duration = Duration::from_secs(1);
/// The lease that a probe takes and gives back.
const PROBE: &str = "readiness";

/// Longest that keys of releases are waited for.
const SHELF_WAITS: Duration = Duration::from_secs(2);

/// Problems of single tasks, or why nothing can be served.
type Found = Result<Vec<String>, NotReady>;

/// State of the readiness probe.
#[derive(Default)]
pub(crate) struct Health {
    /// Time and result of the last probe. Concurrent callers wait for it.
    latest: tokio::sync::Mutex<Option<(Timestamp, Found)>>,
    /// Time of the last read of the database, and whether it was well-formed.
    database: Guarded<Option<(Timestamp, bool)>>,
}

/// Reasons the service is not ready.
#[derive(Clone)]
pub(crate) enum NotReady {
    /// The database is malformed; the log says how.
    Malformed,
    /// Rows or blobs cannot be written.
    Unwritable(&'static str, Arc<StoreError>),
}

impl Health {
    /// Tries to write both and leaves nothing behind; a result less than a second old is reused. Returns the problems
    /// of single tasks, those that cannot continue, and why; and copies of the blobs that are away.
    ///
    /// # Errors
    /// [`NotReady`].
    pub(crate) async fn check(&self, store: &Store, sealer: &Arc<Sealer>, now: impl Fn() -> Timestamp) -> Found {
        let mut latest = self.latest.lock().await;
        let asked = now();
        if let Some((at, found)) = &*latest
            && *at <= asked
            && asked.since(*at) < ANSWER_HOLDS
        {
            return found.clone();
        }
        let found = self.look(store, sealer, asked).await;
        *latest = Some((now(), found.clone()));
        found
    }

    async fn look(&self, store: &Store, sealer: &Arc<Sealer>, now: Timestamp) -> Found {
        if !self.is_well_formed(store, now).await? {
            return Err(NotReady::Malformed);
        }
        let rows = |error| NotReady::Unwritable("the database", Arc::new(error));
        // A lease that is given back before anybody can see it. A change that finds no row would write nothing.
        let probe = store.transact("readiness", |tx| {
            Box::pin(async move {
                match tx.acquire_lease(PROBE, Uuid::nil(), now, READ_EVERY).await? {
                    Some(token) => tx.release_lease(PROBE, token).await,
                    None => Ok(false),
                }
            })
        });
        probe.await.map_err(rows)?;
        let blobs = |error| NotReady::Unwritable("the folder of blobs", Arc::new(error));
        let probe = Bytes::from_static(b"tributary readiness probe\n");
        let digest = store.blobs().put_bytes(probe).await.map_err(blobs)?;
        store.blobs().delete(digest).await.map_err(blobs)?;
        let tasks = store.read("unfinished_tasks", |tx| {
            Box::pin(async move {
                let mut tasks = Vec::new();
                for task in tx.unfinished_tasks().await? {
                    let behind = behind(tx, &task).await?;
                    tasks.push((task, behind));
                }
                Ok::<_, StoreError>(tasks)
            })
        });
        let (tasks, behind): (Vec<_>, Vec<_>) = tasks.await.map_err(rows)?.into_iter().unzip();
        let damaged = crate::damage::survey(store, &tasks).await.map_err(rows)?;
        let damaged = damaged.into_iter().map(|(task, problem)| format!("task {task}: {problem}"));
        let behind = tasks.iter().zip(behind).filter_map(|(task, view)| view.map(|view| (task.id, view)));
        let behind = behind.map(|(task, BehindView { participants, next_round, seen_round })| {
            format!(
                "task {task}: {} sent inputs for rounds up to {seen_round}, which rules out taking part in round {next_round}; \
                 was the database restored? `tributary task rebase {task}` goes on beyond them",
                counted(participants, "participant has", "participants have")
            )
        });
        let apart = shelf_trouble(sealer).await;
        Ok(damaged.chain(behind).chain(store.blobs().troubles()).chain(apart).collect())
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

/// Why secure and private rounds wait, if what they need outside the database cannot be used.
async fn shelf_trouble(sealer: &Arc<Sealer>) -> Option<String> {
    let sealer = Arc::clone(sealer);
    let tried = tokio::time::timeout(SHELF_WAITS, tokio::task::spawn_blocking(move || sealer.try_shelf())).await;
    let why = match tried {
        Ok(Ok(Ok(()))) => return None,
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", SHELF_WAITS.as_secs()),
    };
    Some(format!("keys of releases and ends of ledgers cannot be used, so secure and private rounds wait: {why}"))
}
