//! A pool of connections; each is lent to one caller at a time. A connection that was not given back is closed, which
//! rolls back its transaction.

use std::sync::{Arc, Mutex, PoisonError};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Executor as _, PgConnection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::{connection_error, translate};
use super::patience::{Patience, within};
use crate::error::{Result, StoreError};

pub(super) struct Pool {
    options: PgConnectOptions,
    pub(super) patience: Patience,
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
    pub(super) fn new(options: PgConnectOptions, connections: u32, patience: Patience) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(usize::try_from(connections.max(1)).unwrap_or(Semaphore::MAX_PERMITS)));
        Arc::new(Self { options, patience, idle: Mutex::default(), permits })
    }

    /// Waits for a connection, in the order of requests; makes one unless one is idle.
    ///
    /// # Errors
    /// `Unreachable`, also if all connections stay in use until the timeout; `NoAccess`.
    pub(super) async fn lend(self: &Arc<Self>) -> Result<Loan> {
        let asked = tokio::time::Instant::now();
        let permit = within(self.patience.turn, Arc::clone(&self.permits).acquire_owned()).await?;
        let permit = permit.map_err(StoreError::fault)?;
        metrics::histogram!("tributary_database_connection_wait_seconds").record(asked.elapsed());
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(Loan { connection, pool: Arc::clone(self), _permit: permit })
    }

    /// Has a connection do one thing, outside of transactions.
    pub(super) async fn with<T>(
        self: &Arc<Self>,
        work: impl AsyncFnOnce(&mut PgConnection) -> std::result::Result<T, sqlx::Error>,
    ) -> Result<T> {
        let mut loan = self.lend().await?;
        let error = match within(self.patience.answer, work(&mut loan.connection)).await {
            Ok(Ok(value)) => {
                loan.keep();
                return Ok(value);
            }
            Ok(Err(error)) => translate(error),
            Err(silent) => silent,
        };
        if matches!(error, StoreError::Unreachable(_)) {
            loan.forget_all();
        }
        Err(error)
    }

    async fn connect(&self) -> Result<PgConnection> {
        let made = within(self.patience.answer, async {
            let mut made = self.options.connect().await?;
            made.execute(self.patience.settings()).await?;
            Ok(made)
        });
        made.await?.map_err(connection_error)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<PgConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loan {
    pub(super) fn patience(&self) -> Patience {
        self.pool.patience
    }

    /// Gives the connection back. It must be outside of a transaction, with all statements complete.
    pub(super) fn keep(self) {
        self.pool.idle().push(self.connection);
    }

    /// Closes the connection, which was lost, and the idle ones, which probably are.
    pub(super) fn forget_all(self) {
        self.pool.idle().clear();
    }
}

#[cfg(test)]
mod tests {
    use test_servers::postgres::{Cluster, Options, USER};

    use super::*;
    use crate::postgres::PostgresServer;

    #[tokio::test]
    async fn the_server_looks_whether_its_clients_are_still_there_and_go_on() {
        let Some(cluster) = Cluster::start(Options { tcp: true, ..Options::default() }) else { return };
        let url = format!("postgres://{USER}@127.0.0.1:{}/postgres", cluster.port());
        let server = PostgresServer::parse(&url).unwrap();
        let pool = Pool::new(server.options(), 1, server.patience());
        for (setting, expected) in [
            ("SHOW tcp_keepalives_idle", "30"),
            ("SHOW tcp_keepalives_interval", "10"),
            ("SHOW tcp_keepalives_count", "3"),
            ("SHOW tcp_user_timeout", "60000"),
            ("SHOW idle_in_transaction_session_timeout", "2min"),
        ] {
            let told =
                pool.with(async |connection| sqlx::query_scalar::<_, String>(setting).fetch_one(connection).await);
            assert_eq!(told.await.unwrap(), expected, "{setting}");
        }
    }
}
