//! A pool of connections; each is lent to one caller at a time. One that was not given back is closed, which undoes what
//! it had begun.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::unreachable;
use crate::error::{Result, StoreError};

/// How long a connection may take to be made.
const CONNECTING_MAX: Duration = Duration::from_secs(10);

pub(super) struct Pool {
    options: PgConnectOptions,
    idle: Mutex<Vec<PgConnection>>,
    permits: Arc<Semaphore>,
}

/// A connection that its borrower alone uses; closed, unless it is given back by [`Loan::keep`].
pub(super) struct Loan {
    pub(super) connection: PgConnection,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(options: PgConnectOptions, connections: u32) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(usize::try_from(connections.max(1)).unwrap_or(Semaphore::MAX_PERMITS)));
        Arc::new(Self { options, idle: Mutex::default(), permits })
    }

    /// Waits for a connection, in the order of requests; makes one if none is idle.
    pub(super) async fn lend(self: &Arc<Self>) -> Result<Loan> {
        let asked = tokio::time::Instant::now();
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(StoreError::fault)?;
        metrics::histogram!("tributary_database_connection_wait_seconds").record(asked.elapsed());
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(Loan { connection, pool: Arc::clone(self), _permit: permit })
    }

    async fn connect(&self) -> Result<PgConnection> {
        match tokio::time::timeout(CONNECTING_MAX, self.options.connect()).await {
            Ok(made) => made.map_err(unreachable),
            Err(_) => Err(StoreError::Unreachable(format!("no answer within {} s", CONNECTING_MAX.as_secs()))),
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<PgConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loan {
    /// Gives the connection back. It must be outside of a transaction, and nothing be under way on it.
    pub(super) fn keep(self) {
        self.pool.idle().push(self.connection);
    }

    /// Closes the connection, which was lost, and the idle ones, which probably are.
    pub(super) fn forget_all(self) {
        self.pool.idle().clear();
    }
}
