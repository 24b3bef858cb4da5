//! Health: whether rows and blobs can be written, and whether stored data is intact.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use federation::time::{Clock, Timestamp};
use listener::PoisonFreeMutex;
use store::{Store, StoreError};
use tokio::sync::watch;
use uuid::Uuid;
use wire::grammar::counted;
use wire::inspect::BehindView;

use crate::privacy::seal::Sealer;
use crate::rounds::reported_rounds::behind;

/// Minimum interval between reads of the whole database, whose duration grows with its size.
const READ_EVERY: Duration = Duration::from_secs(60);
/// How long a result is reused: the probe is public, and writes.
const ANSWER_HOLDS: Duration = Duration::from_secs(1);
/// The lease taken and returned by a probe.
const PROBE: &str = "readiness";

/// Maximum duration of an answer. Balancers wait two seconds or more.
const ANSWER_WITHIN: Duration = Duration::from_millis(1500);
/// Maximum wait of a probe for a read of the whole database; a longer read continues after it.
const READ_WAITS: Duration = Duration::from_millis(500);
/// Maximum wait for release keys.
const SECRET_STORE_WAITS: Duration = Duration::from_secs(1);

/// Names of the stages of a probe.
const DATABASE: &str = "the database";
const BLOBS: &str = "the folder of blobs";

/// Problems of single tasks, or the reason why the service is not ready.
type Found = Result<Vec<String>, NotReady>;

/// State of the readiness probe.
#[derive(Default)]
pub(crate) struct Health(Arc<Shared>);

#[derive(Default)]
struct Shared {
    probes: PoisonFreeMutex<Probes>,
    /// The current stage of the probe.
    stage: PoisonFreeMutex<&'static str>,
    /// Time of the last read of the database, and whether it was well-formed.
    database: PoisonFreeMutex<Option<(Timestamp, bool)>>,
    /// Held during a read of the database.
    reading: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Probes {
    /// Time and result of the last probe.
    latest: Option<(Timestamp, Found)>,
    /// The result of the running one. Concurrent callers wait for it.
    running: Option<watch::Receiver<Option<Found>>>,
}

/// Reasons why the service is not ready.
#[derive(Clone)]
pub(crate) enum NotReady {
    /// The database is malformed; details are in the log.
    Malformed,
    /// Rows or blobs cannot be written.
    Unwritable(&'static str, Arc<StoreError>),
    /// Rows or blobs do not respond within the probe's timeout.
    Silent(&'static str, Duration),
}

impl Health {
    /// Writes test rows and blobs, and removes them. Reuses a result less than a second old. Returns the blocked tasks with reasons, and
    /// the unreachable copies of the blobs.
    ///
    /// A probe longer than [`ANSWER_WITHIN`] continues for later callers. Until it ends, they get the error of the previous probe, if it
    /// failed, because retries hide the present error.
    ///
    /// # Errors
    /// [`NotReady`] if rows or blobs cannot be written in time, or the database is malformed.
    pub(crate) async fn check(&self, store: &Store, sealer: &Arc<Sealer>, clock: &Arc<dyn Clock>) -> Found {
        let now = clock.now();
        let fresh = |at: Timestamp| at <= now && now.since(at) < ANSWER_HOLDS;
        let (before, mut running) = {
            let mut probes = self.0.probes.lock();
            let before = probes.latest.clone();
            if let Some((at, found)) = &before
                && fresh(*at)
            {
                return found.clone();
            }
            // A probe with a dead task has closed its channel.
            let running = match probes.running.take().filter(|running| running.has_changed().is_ok()) {
                Some(running) => running,
                None => self.0.probe(store.clone(), Arc::clone(sealer), Arc::clone(clock)),
            };
            probes.running = Some(running.clone());
            (before, running)
        };
        if let Ok(Ok(found)) = tokio::time::timeout(ANSWER_WITHIN, running.wait_for(Option::is_some)).await
            && let Some(found) = found.clone()
        {
            return found;
        }
        match before {
            Some((_, Err(error))) => Err(error),
            Some((_, Ok(_))) | None => Err(NotReady::Silent(*self.0.stage.lock(), ANSWER_WITHIN)),
        }
    }
}

impl Shared {
    /// Starts a probe that ends by itself.
    fn probe(
        self: &Arc<Self>,
        store: Store,
        sealer: Arc<Sealer>,
        clock: Arc<dyn Clock>,
    ) -> watch::Receiver<Option<Found>> {
        let (told, running) = watch::channel(None);
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let (found, apart) = tokio::join!(shared.look(&store, clock.now()), secret_store_trouble(&sealer));
            let found = found.map(|problems| problems.into_iter().chain(apart).collect::<Vec<_>>());
            {
                let mut probes = shared.probes.lock();
                probes.latest = Some((clock.now(), found.clone()));
                probes.running = None;
            }
            told.send_replace(Some(found));
        });
        running
    }

    async fn look(self: &Arc<Self>, store: &Store, now: Timestamp) -> Found {
        *self.stage.lock() = DATABASE;
        if !self.is_well_formed(store, now).await? {
            return Err(NotReady::Malformed);
        }
        let rows = |error| NotReady::Unwritable(DATABASE, Arc::new(error));
        // A lease returned before it becomes visible. An update without a matching row would write nothing.
        let probe = store.transact("readiness", |tx| {
            Box::pin(async move {
                match tx.acquire_lease(PROBE, Uuid::nil(), now, READ_EVERY).await? {
                    Some(token) => tx.release_lease(PROBE, token).await,
                    None => Ok(false),
                }
            })
        });
        probe.await.map_err(rows)?;
        *self.stage.lock() = BLOBS;
        let blobs = |error| NotReady::Unwritable(BLOBS, Arc::new(error));
        let probe = Bytes::from_static(b"tributary readiness probe\n");
        let digest = store.blobs().put_bytes(probe).await.map_err(blobs)?;
        store.blobs().delete(digest).await.map_err(blobs)?;
        *self.stage.lock() = DATABASE;
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
        *self.stage.lock() = BLOBS;
        let damaged = crate::maintenance::damage::survey(store, &tasks).await.map_err(rows)?;
        let damaged = damaged.into_iter().map(|(task, problem)| format!("task {task}: {problem}"));
        let behind = tasks.iter().zip(behind).filter_map(|(task, view)| view.map(|view| (task.id, view)));
        let behind = behind.map(|(task, BehindView { participants, next_round, seen_round })| {
            format!(
                "task {task}: {} sent inputs for rounds up to {seen_round}, which rules out taking part in round {next_round}; \
                 was the database restored? `tributary task rebase {task}` goes on beyond them",
                counted(participants, "participant has", "participants have")
            )
        });
        Ok(damaged.chain(behind).chain(store.blobs().troubles()).collect())
    }

    /// Whether the database was well-formed at its last complete read. A probe occasionally starts such a read, and waits for it briefly.
    async fn is_well_formed(self: &Arc<Self>, store: &Store, now: Timestamp) -> Result<bool, NotReady> {
        let last = *self.database.lock();
        if let Some((at, well_formed)) = last
            && at <= now
            && now.since(at) < READ_EVERY
        {
            return Ok(well_formed);
        }
        if let Ok(alone) = Arc::clone(&self.reading).try_lock_owned() {
            let (shared, store) = (Arc::clone(self), store.clone());
            let reading = tokio::spawn(async move {
                let read = shared.read_database(&store, now).await;
                drop(alone);
                read
            });
            if let Ok(Ok(read)) = tokio::time::timeout(READ_WAITS, reading).await {
                return read;
            }
        }
        Ok(last.is_none_or(|(_, well_formed)| well_formed))
    }

    async fn read_database(&self, store: &Store, now: Timestamp) -> Result<bool, NotReady> {
        let well_formed = match store.check().await {
            Ok(()) => true,
            Err(error @ StoreError::Corrupt(_)) => {
                tracing::error!(%error, "the database is malformed: {error}");
                false
            }
            Err(error) => return Err(NotReady::Unwritable(DATABASE, Arc::new(error))),
        };
        *self.database.lock() = Some((now, well_formed));
        Ok(well_formed)
    }
}

/// Why secure and private rounds wait, if the secret store is unusable.
async fn secret_store_trouble(sealer: &Arc<Sealer>) -> Option<String> {
    let sealer = Arc::clone(sealer);
    let tried =
        tokio::time::timeout(SECRET_STORE_WAITS, tokio::task::spawn_blocking(move || sealer.try_secret_store())).await;
    let why = match tried {
        Ok(Ok(Ok(()))) => return None,
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", SECRET_STORE_WAITS.as_secs()),
    };
    Some(format!("keys of releases and ends of ledgers cannot be used, so secure and private rounds wait: {why}"))
}
