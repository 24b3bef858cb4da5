//! A pool of connections; each is lent to one caller at a time and returned without a transaction.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::translate;
use super::{dialect, statement};
use crate::driver::{Driver, Extent, Mode, Query, Take};
use crate::error::{Result, StoreError};

#[derive(Clone)]
pub(super) struct Pool {
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    medium: Medium,
}

/// Where a database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// Commits and large reads may wait for a disk.
    File,
    Memory,
}

/// A lent connection; returned when dropped.
pub(super) struct Loan {
    held: Option<PooledConnection>,
    /// The transaction that was started, with any outcome.
    begun: Option<Mode>,
    medium: Medium,
}

/// A connection in transit: wherever it is dropped, it returns to its pool without a transaction, and before its
/// permit.
struct PooledConnection {
    connection: Option<Connection>,
    pool: Pool,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(connections: Vec<Connection>, medium: Medium) -> Self {
        let permits = Arc::new(Semaphore::new(connections.len()));
        Self { idle: Arc::new(Mutex::new(connections)), permits, medium }
    }

    /// Waits for a connection, in the order of requests.
    pub(super) async fn lend(&self) -> Result<Loan> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(StoreError::fault)?;
        let connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if connection.is_none() {
            return Err(StoreError::fault("a permit without a connection"));
        }
        let held = PooledConnection { connection, pool: self.clone(), _permit: permit };
        Ok(Loan { held: Some(held), begun: None, medium: self.medium })
    }
}

impl PooledConnection {
    fn connection(&self) -> Result<&Connection> {
        self.connection.as_ref().ok_or_else(given_back)
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            roll_back(&connection);
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}

impl Loan {
    /// Begins a transaction. One that writes may wait for another writing process.
    pub(super) async fn begin(&mut self, mode: Mode) -> Result<()> {
        self.begun = Some(mode);
        let begin = |statement| move |connection: &Connection| connection.execute_batch(statement).map_err(translate);
        match mode {
            Mode::Read => self.run(begin("BEGIN DEFERRED")),
            // With the write lock taken first, later statements cannot meet another writer.
            Mode::Write => self.run_beside(begin("BEGIN IMMEDIATE")).await,
        }
    }

    /// Uses the connection on the calling thread: a statement on a few rows takes microseconds, less than a hand-over.
    pub(super) fn run<T>(&mut self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.held.as_ref().ok_or_else(given_back)?.connection().and_then(work)
    }

    /// Uses the connection for longer work: on a blocking thread if the database is a file. If the caller gives up, the
    /// connection returns when the thread is done.
    pub(super) async fn run_beside<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.medium == Medium::Memory {
            return self.run(work);
        }
        let held = self.held.take().ok_or_else(given_back)?;
        let done = tokio::task::spawn_blocking(move || {
            let result = held.connection().and_then(work);
            (held, result)
        });
        let (held, result) = done.await.map_err(StoreError::fault)?;
        self.held = Some(held);
        result
    }

    /// Uses the connection for a query, on this thread or on another one, by the number of rows.
    async fn ask<T: Send + 'static>(
        &mut self,
        query: Query<'_>,
        extent: Extent,
        work: impl FnOnce(&Connection, &Query<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let query = dialect::spell(query)?;
        if extent == Extent::Few || self.medium == Medium::Memory {
            return self.run(|connection| work(connection, &query));
        }
        let query = query.into_owned();
        self.run_beside(move |connection| work(connection, &query)).await
    }
}

/// A transaction: [`Loan::begin`] was called, or the loan has the database to itself and only reads.
#[async_trait]
impl Driver for Loan {
    async fn change(&mut self, query: Query<'_>, extent: Extent) -> Result<u64> {
        self.ask(query, extent, statement::change).await
    }

    async fn query(&mut self, query: Query<'_>, extent: Extent, mut taker: Box<dyn Take>) -> Result<Box<dyn Take>> {
        let work = move |connection: &Connection, query: &Query<'_>| {
            statement::for_each(connection, query, |row| taker.take(row))?;
            Ok(taker)
        };
        self.ask(query, extent, work).await
    }

    /// Commits the transaction, if one was started. If that fails it is rolled back.
    async fn commit(mut self: Box<Self>) -> Result<()> {
        let commit = |connection: &Connection| {
            let result = connection.execute_batch("COMMIT").map_err(translate);
            roll_back(connection);
            result
        };
        match self.begun.take() {
            None => Ok(()),
            Some(Mode::Read) => self.run(commit),
            Some(Mode::Write) => self.run_beside(commit).await,
        }
    }

    async fn rollback(mut self: Box<Self>) -> Result<()> {
        self.run(|connection| {
            roll_back(connection);
            Ok(())
        })
    }
}

fn given_back() -> StoreError {
    StoreError::fault("a connection that was given back")
}

/// Ends an open transaction. SQLite may have ended it, as it does on a full disk.
fn roll_back(connection: &Connection) {
    if !connection.is_autocommit()
        && let Err(error) = connection.execute_batch("ROLLBACK")
    {
        tracing::warn!(%error, "could not roll a transaction back");
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn whoever_gives_up_while_a_thread_works_loses_no_connection() {
        let pool = Pool::new(vec![Connection::open_in_memory().unwrap()], Medium::File);
        let mut loan = pool.lend().await.unwrap();
        loan.begin(Mode::Write).await.unwrap();
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let work = loan.run_beside(move |_| {
            told.recv().unwrap();
            Ok(())
        });
        assert!(work.now_or_never().is_none(), "the thread has begun, and nobody waits for it any more");
        drop(loan);
        tell.send(()).unwrap();
        let mut next = pool.lend().await.unwrap();
        assert!(next.run(|connection| Ok(connection.is_autocommit())).unwrap(), "no transaction is left open");
    }
}
