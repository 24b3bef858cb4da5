//! Stops or fails a process between any two of its durable changes of rows, for whoever simulates its death.
//!
//! [`Store::interrupted`] is the same rows as seen by one process of several: it has its own wake-ups, and asks an
//! [`Interruption`] before each transaction and at each commit. Nothing but a caller in this program can ask for it.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::Store;
use crate::blob::BlobStore;
use crate::driver::{Backend, Driver, Extent, Mode, Query, Take};
use crate::error::{Result, StoreError};
use crate::wake::Wake;

/// What becomes of one durable change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFate {
    Done,
    /// It does not take place, and fails.
    Fails,
    /// It takes place, and fails: whoever asked for it cannot know.
    FailsAfter,
    /// The process dies before it: whoever asked for it never hears of it.
    StopsBefore,
    /// The process dies just after it.
    StopsAfter,
}

/// Decides how far a process gets.
#[async_trait]
pub trait Interruption: Send + Sync {
    /// Returns when the process may go on; never, once it has died. Asked before each transaction, while nothing is held;
    /// `changes` tells whether that may change rows.
    async fn may_go_on(&self, changes: bool);

    /// What becomes of the commit that is about to take place. Asked once for each transaction that may change rows.
    fn commits(&self) -> WriteFate;
}

impl Store {
    /// The same rows, interrupted by `by` and shared with whoever else has them, with these blobs and wake-ups of its own.
    #[must_use]
    pub fn interrupted(&self, blobs: Arc<dyn BlobStore>, by: Arc<dyn Interruption>) -> Self {
        let rows = Arc::new(Interrupted { rows: Arc::clone(&self.rows), by });
        Self { rows, blobs, wake: Wake::new(), is_shared: true }
    }
}

struct Interrupted {
    rows: Arc<dyn Backend>,
    by: Arc<dyn Interruption>,
}

#[async_trait]
impl Backend for Interrupted {
    async fn begin(&self, name: &'static str, mode: Mode) -> Result<Box<dyn Driver>> {
        self.by.may_go_on(mode == Mode::Write).await;
        let driver = self.rows.begin(name, mode).await?;
        Ok(Box::new(Transaction { driver, mode, by: Arc::clone(&self.by) }))
    }

    fn pause(&self, attempt: u32) -> Option<Duration> {
        self.rows.pause(attempt)
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
        // Before anything is waited for: a process that is dead holds no connection.
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
            let told = take(&process, Uuid::from_u128(1)).await;
            assert_eq!(told.map(|told| told.is_ok()), is_told, "{fate:?}");
            // Another process sees what there is, whatever came of the first one.
            let free = take(&store, Uuid::from_u128(2)).await.unwrap().unwrap();
            assert_eq!(free, !is_kept, "{fate:?}");
        }
    }
}
