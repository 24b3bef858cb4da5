//! A transaction on a lent connection.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use sqlx::{Column as _, Executor as _, PgConnection, Row as _};

use super::error::translate;
use super::patience::within;
use super::pool::Loan;
use super::{dialect, values};
use crate::driver::{Driver, Extent, Mode, Query, Row, Take};
use crate::error::{Result, StoreError};

/// Names of transactions that read with more than one statement, which need one state for all. Others do not wait for a
/// BEGIN: a statement by itself sees one state.
pub(super) type Longer = Arc<Mutex<HashSet<&'static str>>>;

/// A transaction in progress. Dropped, its connection is closed, and the server undoes it.
pub(super) struct Session {
    /// `None` once the connection was lost.
    loan: Option<Loan>,
    name: &'static str,
    mode: Mode,
    /// `None` once the server has begun; before that for a read of one statement, as far as is known.
    alone: Option<Longer>,
    /// Whether a statement failed: the server then refuses everything but a rollback.
    failed: bool,
    waits: u64,
}

impl Session {
    pub(super) async fn begin(loan: Loan, name: &'static str, mode: Mode, longer: &Longer) -> Result<Self> {
        let mut session = Self { loan: Some(loan), name, mode, alone: None, failed: false, waits: 0 };
        let begin = match mode {
            Mode::Read if !longer.lock().unwrap_or_else(PoisonError::into_inner).contains(name) => {
                session.alone = Some(Arc::clone(longer));
                return Ok(session);
            }
            Mode::Read => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Mode::Write => "BEGIN ISOLATION LEVEL SERIALIZABLE",
        };
        session.wait(async |connection| connection.execute(begin).await.map(drop)).await?;
        Ok(session)
    }

    /// Uses the connection, and keeps in mind how that went.
    async fn wait<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> std::result::Result<T, sqlx::Error>,
    ) -> Result<T> {
        if self.failed {
            return Err(StoreError::fault(format!("transaction {} went on after an error", self.name)));
        }
        if self.waits > 0
            && let Some(longer) = &self.alone
        {
            // The second statement would see a later state: everything is read again, in one.
            longer.lock().unwrap_or_else(PoisonError::into_inner).insert(self.name);
            self.failed = true;
            return Err(StoreError::Busy);
        }
        let loan = self.loan.as_mut().ok_or_else(|| StoreError::fault("a connection that was lost"))?;
        let known = sqlx::Connection::cached_statements_size(&loan.connection);
        let result = within(loan.patience().statement, work(&mut loan.connection)).await;
        // A statement is sent to be prepared, and awaited, before it is first run on a connection.
        let prepared = sqlx::Connection::cached_statements_size(&loan.connection) > known;
        self.waits += 1 + u64::from(prepared);
        let error = match result {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => translate(error),
            Err(silent) => silent,
        };
        self.failed = true;
        if let StoreError::Unreachable(_) = &error
            && let Some(loan) = self.loan.take()
        {
            loan.forget_all();
        }
        Err(error)
    }

    /// Gives the connection back after its transaction has ended.
    fn give_back(&mut self) {
        if let Some(loan) = self.loan.take() {
            loan.keep();
        }
    }

    /// Ends a transaction in the background, without waiting for the outcome.
    fn end_beside(mut self, statement: &'static str) {
        let Some(mut loan) = self.loan.take() else { return };
        if self.alone.is_some() {
            return loan.keep();
        }
        tokio::spawn(async move {
            let ended = within(loan.patience().statement, loan.connection.execute(statement)).await;
            if matches!(ended, Ok(Ok(_))) {
                loan.keep();
            }
        });
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        metrics::counter!("tributary_database_round_trips_total", "transaction" => self.name).increment(self.waits);
    }
}

#[async_trait]
impl Driver for Session {
    async fn change(&mut self, query: Query<'_>, _: Extent) -> Result<u64> {
        let spelt = dialect::spell(query.sql)?;
        let arguments = values::bind(&spelt.arguments, &query.arguments)?;
        let changed =
            self.wait(async |connection| connection.execute(sqlx::query_with(&*spelt.sql, arguments)).await).await?;
        Ok(changed.rows_affected())
    }

    async fn query(&mut self, query: Query<'_>, _: Extent, mut taker: Box<dyn Take>) -> Result<Box<dyn Take>> {
        let spelt = dialect::spell(query.sql)?;
        let arguments = values::bind(&spelt.arguments, &query.arguments)?;
        let (taker, taken) = self
            .wait(async move |connection| {
                let mut rows = connection.fetch(sqlx::query_with(&*spelt.sql, arguments));
                let (mut names, mut taken) = (Vec::new(), Ok(()));
                while let Some(row) = rows.try_next().await? {
                    if names.is_empty() {
                        names = row.columns().iter().map(|column| Box::from(column.name())).collect();
                    }
                    if taken.is_ok() {
                        taken = taker.take(&Row::new(&names, &row));
                    }
                }
                Ok((taker, taken))
            })
            .await?;
        taken.map(|()| taker)
    }

    async fn commit(mut self: Box<Self>) -> Result<()> {
        if self.mode == Mode::Read {
            // The caller does not depend on its end.
            (*self).end_beside("COMMIT");
            return Ok(());
        }
        let was_failed = self.failed;
        match self.wait(async |connection| connection.execute("COMMIT").await.map(drop)).await {
            Ok(()) => {
                self.give_back();
                Ok(())
            }
            // It may have been committed, so it must not run again.
            Err(StoreError::Unreachable(cause)) => {
                Err(StoreError::fault(format!("the connection was lost during the commit of {}: {cause}", self.name)))
            }
            // A commit that the server rejects ends the transaction. A rollback would then fail, and both sides would
            // log that.
            Err(error) if !was_failed => {
                self.give_back();
                Err(error)
            }
            Err(error) => {
                (*self).end_beside("ROLLBACK");
                Err(error)
            }
        }
    }

    async fn rollback(self: Box<Self>) -> Result<()> {
        (*self).end_beside("ROLLBACK");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use test_servers::postgres::{Cluster, Options};

    use super::super::PostgresServer;
    use super::super::pool::Pool;
    use super::*;

    #[tokio::test]
    async fn refused_commit_leaves_no_transaction_to_roll_back() {
        let Some(cluster) = Cluster::start(Options::default()) else { return };
        let database = cluster.create_database();
        cluster.sql(
            &database,
            "CREATE TABLE pair (name text PRIMARY KEY, n int); INSERT INTO pair VALUES ('a', 0), ('b', 0)",
        );
        let server = PostgresServer::parse(&cluster.url(&database)).unwrap();
        let pool = Pool::new(server.options(), 2, server.patience());
        let mut sessions = Vec::new();
        for (read, write) in [
            ("SELECT n FROM pair WHERE name = 'a'", "UPDATE pair SET n = 1 WHERE name = 'b'"),
            ("SELECT n FROM pair WHERE name = 'b'", "UPDATE pair SET n = 1 WHERE name = 'a'"),
        ] {
            let loan = pool.lend().await.unwrap();
            let mut session = Session::begin(loan, "skew", Mode::Write, &Longer::default()).await.unwrap();
            session.wait(async |connection| connection.execute(read).await.map(drop)).await.unwrap();
            sessions.push((session, write));
        }
        for (session, write) in &mut sessions {
            session.wait(async |connection| connection.execute(*write).await.map(drop)).await.unwrap();
        }
        let mut refused = 0;
        for (session, _) in sessions {
            refused += u32::from(matches!(Box::new(session).commit().await, Err(StoreError::Busy)));
        }
        assert_eq!(refused, 1, "each read what the other changed");
        // Both connections are free, outside of a transaction.
        let (one, other) = (pool.lend().await.unwrap(), pool.lend().await.unwrap());
        drop((one, other));
        let log = std::fs::read_to_string(cluster.folder().join("log")).unwrap();
        assert!(log.contains("could not serialize access") && !log.contains("no transaction in progress"), "{log}");
    }
}
