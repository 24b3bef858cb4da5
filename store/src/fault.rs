//! Stops or fails a process between any two of its durable changes of rows, to simulate crashes.
//!
//! [`Store::interrupted`] is the same rows as seen by one process of several: it has its own wake-ups, and calls an
//! [`Interruption`] before each transaction and at each commit. [`SavedRows`] sets rows in memory back to what they once were.
//! Only a caller in this program can use either.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use federation::id::TaskId;
use federation::task_status::TaskStatus;

use crate::Store;
use crate::blob::BlobStore;
use crate::driver::{Backend, Driver, Extent, Mode, Query, Take, Turn};
use crate::error::{Result, StoreError};
use crate::sqlite::SqliteBackend;
use crate::wake::Wake;

/// Outcome of one durable change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFate {
    Done,
    /// It does not take place, and fails.
    Fails,
    /// It takes place, but reports a failure.
    FailsAfter,
    /// The process dies before it, without a result.
    StopsBefore,
    /// The process dies just after it.
    StopsAfter,
}

/// Decides how far a process gets.
#[async_trait]
pub trait Interruption: Send + Sync {
    /// Returns when the process may continue; stays pending once the process has died. Called before each transaction
    /// acquires its locks. `changes`: whether the transaction may change rows.
    async fn may_go_on(&self, changes: bool);

    /// The fate of the next commit. Called once for each transaction that may change rows.
    fn commits(&self) -> WriteFate;
}

impl Store {
    /// The same rows, interrupted by `by` and shared with their other users, with these blobs and wake-ups of its own.
    #[must_use]
    pub fn interrupted(&self, blobs: Arc<dyn BlobStore>, by: Arc<dyn Interruption>) -> Self {
        let rows = Arc::new(Interrupted { rows: Arc::clone(&self.rows), by });
        Self { rows, blobs, wake: Wake::new(), is_shared: true }
    }
}

/// Rows in memory that can be set back to a saved state.
pub struct SavedRows(Arc<SqliteBackend>);

impl SavedRows {
    /// New rows, without a saved state.
    ///
    /// # Errors
    /// `Fault` if SQLite cannot create the database.
    pub fn in_memory() -> Result<Self> {
        Ok(Self(Arc::new(SqliteBackend::open_memory()?)))
    }

    /// These rows, with these blobs. Stores from before a restore see the rows change.
    #[must_use]
    pub fn store(&self, blobs: Arc<dyn BlobStore>) -> Store {
        Store { rows: Arc::clone(&self.0) as _, blobs, wake: Wake::new(), is_shared: false }
    }

    /// Keeps the present rows to go back to; once.
    ///
    /// # Errors
    /// `Fault` if rows were saved before.
    pub async fn save(&self) -> Result<()> {
        self.0.save().await
    }

    /// Restores the saved rows. Waits until all transactions have ended.
    ///
    /// # Errors
    /// `Fault` if [`Self::save`] was not called before.
    pub async fn restore(&self) -> Result<()> {
        self.0.restore().await
    }
}

/// The progress of a task, in counts of rows that are only added or change once, so that repeated checks detect changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    pub status: TaskStatus,
    /// Model versions that were published, the first included.
    pub versions: u32,
    /// Rows of its privacy ledger.
    pub charges: u32,
    /// Rounds and attempts that entered a state, and how many of them the state `CANCELLED`.
    pub transitions: u32,
    pub cancelled: u32,
    /// Admitted inputs, and how many of them sums hold.
    pub admitted: u32,
    pub folded: u32,
    /// Sums that were released.
    pub released: u32,
}

columns!(Pulse { status, versions, charges, transitions, cancelled, admitted, folded, released });

impl crate::Transaction<'_> {
    /// Progress of a task; `None` if the task does not exist.
    pub async fn pulse(&mut self, task: TaskId) -> Result<Option<Pulse>> {
        self.find(
            "SELECT status,
                    (SELECT count(*) FROM model_version WHERE task = ?1) AS versions,
                    (SELECT count(*) FROM privacy_ledger WHERE task = ?1) AS charges,
                    (SELECT count(*) FROM round_change WHERE task = ?1) AS transitions,
                    (SELECT count(*) FROM round_change WHERE task = ?1 AND state = 'CANCELLED') AS cancelled,
                    (SELECT count(*) FROM admitted WHERE task = ?1) AS admitted,
                    (SELECT count(*) FROM admitted WHERE task = ?1 AND folded = 1) AS folded,
                    (SELECT count(*) FROM noised_sum WHERE task = ?1) AS released
             FROM task WHERE id = ?1",
            task,
        )
        .await
    }
}

#[cfg(feature = "deliberate-faults")]
impl crate::Transaction<'_> {
    /// Marks an admitted input as not summed, whether it was or not: a deliberate fault, which tests must detect.
    pub async fn count_again(
        &mut self,
        attempt: federation::id::Attempt,
        participant: federation::id::ParticipantId,
    ) -> Result<()> {
        let folded =
            "UPDATE admitted SET folded = 0 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4";
        self.change(folded, (attempt, participant)).await?;
        Ok(())
    }
}

struct Interrupted {
    rows: Arc<dyn Backend>,
    by: Arc<dyn Interruption>,
}

#[async_trait]
impl Backend for Interrupted {
    async fn turn(&self, name: &'static str, mode: Mode, was_refused: bool) -> Option<Turn> {
        self.rows.turn(name, mode, was_refused).await
    }

    async fn begin(&self, name: &'static str, mode: Mode) -> Result<Box<dyn Driver>> {
        self.by.may_go_on(mode == Mode::Write).await;
        let driver = self.rows.begin(name, mode).await?;
        Ok(Box::new(Transaction { driver, mode, by: Arc::clone(&self.by) }))
    }

    fn pause(&self, attempt: u32, lost: Option<Duration>) -> Option<Duration> {
        self.rows.pause(attempt, lost)
    }

    async fn empty_log(&self) -> Result<()> {
        self.by.may_go_on(false).await;
        self.rows.empty_log().await
    }

    async fn check(&self) -> Result<()> {
        self.rows.check().await
    }

    async fn problems(&self) -> Result<Vec<String>> {
        self.rows.problems().await
    }

    #[cfg(feature = "conformance")]
    async fn limit_pages(&self, pages: u32) -> Result<()> {
        self.rows.limit_pages(pages).await
    }

    #[cfg(feature = "conformance")]
    async fn revert_schema(&self) -> Result<()> {
        self.rows.revert_schema().await
    }

    #[cfg(feature = "conformance")]
    async fn migrate_schema(&self) -> Result<()> {
        self.rows.migrate_schema().await
    }

    #[cfg(feature = "conformance")]
    fn explain(&self) -> &'static str {
        self.rows.explain()
    }
}

struct Transaction {
    driver: Box<dyn Driver>,
    mode: Mode,
    by: Arc<dyn Interruption>,
}

#[async_trait]
impl Driver for Transaction {
    async fn change(&mut self, query: Query<'_>, extent: Extent) -> Result<u64> {
        self.driver.change(query, extent).await
    }

    async fn query(&mut self, query: Query<'_>, extent: Extent, taker: Box<dyn Take>) -> Result<Box<dyn Take>> {
        self.driver.query(query, extent, taker).await
    }

    async fn commit(self: Box<Self>) -> Result<()> {
        let fate = match self.mode {
            Mode::Read => WriteFate::Done,
            Mode::Write => self.by.commits(),
        };
        // Comes before any wait: a dead process must release its connection.
        match fate {
            WriteFate::Done | WriteFate::FailsAfter | WriteFate::StopsAfter => self.driver.commit().await?,
            WriteFate::Fails | WriteFate::StopsBefore => self.driver.rollback().await?,
        }
        match fate {
            WriteFate::Done => Ok(()),
            WriteFate::Fails | WriteFate::FailsAfter => Err(StoreError::fault("the database went away")),
            WriteFate::StopsBefore | WriteFate::StopsAfter => pending().await,
        }
    }

    async fn rollback(self: Box<Self>) -> Result<()> {
        self.driver.rollback().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt as _;
    use uuid::Uuid;

    use super::*;
    use crate::{Blobs, Database, StoreConfig};

    /// Fates in the order of commits; [`WriteFate::Done`] after them.
    struct Fates(Mutex<Vec<WriteFate>>);

    #[async_trait]
    impl Interruption for Fates {
        async fn may_go_on(&self, _changes: bool) {}

        fn commits(&self) -> WriteFate {
            self.0.lock().unwrap().pop().unwrap_or(WriteFate::Done)
        }
    }

    async fn take(store: &Store, holder: Uuid) -> Option<Result<bool>> {
        let (now, ttl) = (federation::time::Timestamp(1), std::time::Duration::from_secs(9));
        let take =
            store.transact("take", |tx| Box::pin(async move { tx.acquire_lease("name", holder, now, ttl).await }));
        take.now_or_never().map(|taken| taken.map(|token| token.is_some()))
    }

    #[tokio::test]
    async fn rows_go_back_to_what_was_saved_as_often_as_wanted() {
        let clock = Arc::new(federation::time::MockClock::new(federation::time::Timestamp(1)));
        let blobs = Blobs::Memory.open(clock).await.unwrap();
        let saved = SavedRows::in_memory().unwrap();
        assert!(saved.restore().await.is_err(), "nothing is saved yet");
        let store = saved.store(blobs);
        let token = async |name: &'static str| {
            store.read("token", |tx| Box::pin(async move { tx.lease_token(name).await })).await.unwrap()
        };
        take(&store, Uuid::from_u128(1)).await.unwrap().unwrap();
        saved.save().await.unwrap();
        for _ in 0..2 {
            assert!(take(&store, Uuid::from_u128(1)).await.unwrap().unwrap());
            assert_eq!(token("name").await, Some(2));
            saved.restore().await.unwrap();
            assert_eq!(token("name").await, Some(1));
        }
    }

    #[tokio::test]
    async fn each_fate_leaves_or_loses_the_change_and_tells_or_hides_it() {
        for (fate, is_told, is_kept) in [
            (WriteFate::Done, Some(true), true),
            (WriteFate::Fails, Some(false), false),
            (WriteFate::FailsAfter, Some(false), true),
            (WriteFate::StopsBefore, None, false),
            (WriteFate::StopsAfter, None, true),
        ] {
            let clock = Arc::new(federation::time::MockClock::new(federation::time::Timestamp(1)));
            let config = StoreConfig { database: Database::SqliteMemory, blobs: Blobs::Memory, connections: 1, clock };
            let store = Store::open(config).await.unwrap();
            let fates = Arc::new(Fates(Mutex::new(vec![fate])));
            let process = store.interrupted(Arc::clone(store.blobs()), fates);
            let mut wakes = process.wake().subscribe();
            let told = take(&process, Uuid::from_u128(1)).await;
            assert_eq!(told.map(|told| told.is_ok()), is_told, "{fate:?}");
            // Waiting callers of a process without this knowledge check again.
            let is_lost = wakes.next().now_or_never() == Some(Some(crate::WakeEvent::Lost));
            assert_eq!(is_lost, is_told == Some(false), "{fate:?}");
            // Another process sees the stored rows, after any outcome of the first one.
            let free = take(&store, Uuid::from_u128(2)).await.unwrap().unwrap();
            assert_eq!(free, !is_kept, "{fate:?}");
        }
    }
}
