//! Connections that are lent out one caller at a time, and come back without a transaction.
//!
//! sqlx's own pool and transactions are not used: when SQLite ends a transaction by itself, as it does on a full disk,
//! sqlx still counts it as open and the connection can never begin another.

use std::sync::{Arc, Mutex, PoisonError};

use sqlx::SqliteConnection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::translate;
use crate::error::{Result, StoreError};

/// Lends connections.
#[derive(Clone)]
pub(super) struct Pool {
    idle: Arc<Mutex<Vec<Slot>>>,
    permits: Arc<Semaphore>,
}

struct Slot {
    connection: SqliteConnection,
    /// Whether a transaction may be open.
    open: bool,
}

/// A connection that is lent; returned when dropped.
pub(super) struct Loan {
    slot: Option<Slot>,
    pool: Pool,
    /// Held until the connection is back among the idle ones.
    permit: Option<OwnedSemaphorePermit>,
}

impl Pool {
    pub(super) fn new(connections: Vec<SqliteConnection>) -> Self {
        let permits = Arc::new(Semaphore::new(connections.len()));
        let idle = connections.into_iter().map(|connection| Slot { connection, open: false }).collect();
        Self { idle: Arc::new(Mutex::new(idle)), permits }
    }

    /// Waits for a connection, in the order of asking.
    pub(super) async fn lend(&self) -> Result<Loan> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(StoreError::fault)?;
        let slot = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if slot.is_none() {
            return Err(StoreError::fault("a permit without a connection"));
        }
        Ok(Loan { slot, pool: self.clone(), permit: Some(permit) })
    }

    fn take_back(&self, slot: Slot) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    }
}

impl Loan {
    /// The connection.
    pub(super) fn connection(&mut self) -> Result<&mut SqliteConnection> {
        self.slot().map(|slot| &mut slot.connection)
    }

    /// Begins a transaction, after ending whatever was left open.
    pub(super) async fn begin(&mut self, statement: &'static str) -> Result<()> {
        let slot = self.slot()?;
        if slot.open {
            roll_back(slot).await;
        }
        slot.open = true;
        sqlx::query(statement).execute(&mut slot.connection).await.map_err(translate)?;
        Ok(())
    }

    /// Goes on without a transaction, after ending whatever was left open.
    pub(super) async fn begin_nothing(&mut self) {
        if let Some(slot) = self.slot.as_mut().filter(|slot| slot.open) {
            roll_back(slot).await;
        }
    }

    /// Makes the transaction durable. If that fails it is rolled back.
    pub(super) async fn commit(&mut self) -> Result<()> {
        let slot = self.slot()?;
        if !slot.open {
            return Ok(());
        }
        let result = sqlx::query("COMMIT").execute(&mut slot.connection).await;
        match result {
            Ok(_) => slot.open = false,
            Err(_) => roll_back(slot).await,
        }
        result.map(|_| ()).map_err(translate)
    }

    /// Undoes the transaction.
    pub(super) async fn rollback(&mut self) -> Result<()> {
        let slot = self.slot()?;
        if slot.open {
            roll_back(slot).await;
        }
        Ok(())
    }

    fn slot(&mut self) -> Result<&mut Slot> {
        self.slot.as_mut().ok_or_else(|| StoreError::fault("a connection that was given back"))
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some(mut slot) = self.slot.take() else { return };
        let (pool, permit) = (self.pool.clone(), self.permit.take());
        // Without a runtime, the next to borrow the connection ends the transaction.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if slot.open => {
                runtime.spawn(async move {
                    roll_back(&mut slot).await;
                    pool.take_back(slot);
                    drop(permit);
                });
            }
            _ => {
                pool.take_back(slot);
                drop(permit);
            }
        }
    }
}

/// Ends the transaction if one is open. The one way to fail is that none is, because SQLite has ended it by itself.
async fn roll_back(slot: &mut Slot) {
    let _ = sqlx::query("ROLLBACK").execute(&mut slot.connection).await;
    slot.open = false;
}
