//! A pool of connections; each is lent to one caller at a time and returned without a transaction.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::translate;
use super::statement::Query;
use crate::error::{Result, StoreError};

#[derive(Clone)]
pub(super) struct Pool {
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    /// Whether the database is a file: commits and large reads may wait for a disk.
    may_block: bool,
}

/// A lent connection; returned when dropped.
pub(super) struct Loan {
    held: Option<Held>,
    /// Whether a transaction was started, whatever its outcome.
    begun: bool,
    may_block: bool,
}

/// A connection in transit: wherever it is dropped, it returns to its pool without a transaction, and before its
/// permit.
struct Held {
    connection: Option<Connection>,
    pool: Pool,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(connections: Vec<Connection>, may_block: bool) -> Self {
        let permits = Arc::new(Semaphore::new(connections.len()));
        Self { idle: Arc::new(Mutex::new(connections)), permits, may_block }
    }

    /// Waits for a connection, in the order of requests.
    pub(super) async fn lend(&self) -> Result<Loan> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(StoreError::fault)?;
        let connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if connection.is_none() {
            return Err(StoreError::fault("a permit without a connection"));
        }
        let held = Held { connection, pool: self.clone(), _permit: permit };
        Ok(Loan { held: Some(held), begun: false, may_block: self.may_block })
    }
}

impl Held {
    fn connection(&self) -> Result<&Connection> {
        self.connection.as_ref().ok_or_else(given_back)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            roll_back(&connection);
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}

impl Loan {
    /// Begins a transaction. One that `locks` may wait for another writing process.
    pub(super) async fn begin(&mut self, statement: &'static str, locks: bool) -> Result<()> {
        self.begun = true;
        let begin = move |connection: &Connection| connection.execute_batch(statement).map_err(translate);
        if locks { self.run_beside(begin).await } else { self.run(begin) }
    }

    /// Commits the transaction, if one was started. If that fails it is rolled back.
    pub(super) async fn commit(&mut self, changes: bool) -> Result<()> {
        if !std::mem::take(&mut self.begun) {
            return Ok(());
        }
        let commit = |connection: &Connection| {
            let result = connection.execute_batch("COMMIT").map_err(translate);
            roll_back(connection);
            result
        };
        if changes { self.run_beside(commit).await } else { self.run(commit) }
    }

    pub(super) fn rollback(&mut self) -> Result<()> {
        self.begun = false;
        self.run(|connection| {
            roll_back(connection);
            Ok(())
        })
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
        if !self.may_block {
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

    /// The same for a query.
    pub(super) async fn ask_beside<T: Send + 'static>(
        &mut self,
        query: Query<'_>,
        work: impl FnOnce(&Connection, &Query<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if !self.may_block {
            return self.run(|connection| work(connection, &query));
        }
        let query = query.into_owned()?;
        self.run_beside(move |connection| work(connection, &query)).await
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
        let pool = Pool::new(vec![Connection::open_in_memory().unwrap()], true);
        let mut loan = pool.lend().await.unwrap();
        loan.begin("BEGIN IMMEDIATE", true).await.unwrap();
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
