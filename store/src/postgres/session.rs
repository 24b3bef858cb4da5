//! A transaction on a lent connection.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use sqlx::{Column as _, Executor as _, PgConnection, Row as _};

use super::error::translate;
use super::pool::Loan;
use super::{dialect, values};
use crate::driver::{Driver, Extent, Mode, Query, Row, Take};
use crate::error::{Result, StoreError};

/// How long a connection is waited for in silence. A server that is gone without a word is noticed so.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A transaction in progress. Dropped, its connection is closed, and the server undoes it.
pub(super) struct Session {
    /// `None` once the connection was lost.
    loan: Option<Loan>,
    name: &'static str,
    mode: Mode,
    /// Whether a statement failed: the server then refuses everything but a rollback.
    failed: bool,
    waits: u64,
}

impl Session {
    pub(super) async fn begin(loan: Loan, name: &'static str, mode: Mode) -> Result<Self> {
        let mut session = Self { loan: Some(loan), name, mode, failed: false, waits: 0 };
        let begin = match mode {
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
        let loan = self.loan.as_mut().ok_or_else(|| StoreError::fault("a connection that was lost"))?;
        let known = sqlx::Connection::cached_statements_size(&loan.connection);
        let result = tokio::time::timeout(SILENCE_MAX, work(&mut loan.connection)).await;
        // A statement is sent to be prepared, and awaited, before it is first run on a connection.
        let prepared = sqlx::Connection::cached_statements_size(&loan.connection) > known;
        self.waits += 1 + u64::from(prepared);
        let error = match result {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => translate(error),
            Err(_) => StoreError::Unreachable(format!("no answer within {} s", SILENCE_MAX.as_secs())),
        };
        self.failed = true;
        if let StoreError::Unreachable(_) = &error
            && let Some(loan) = self.loan.take()
        {
            loan.forget_all();
        }
        Err(error)
    }

    /// Ends a transaction whose outcome nobody waits for.
    fn end_beside(mut self, statement: &'static str) {
        let Some(mut loan) = self.loan.take() else { return };
        tokio::spawn(async move {
            let ended = tokio::time::timeout(SILENCE_MAX, loan.connection.execute(statement)).await;
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
            // Nothing depends on its end.
            (*self).end_beside("COMMIT");
            return Ok(());
        }
        match self.wait(async |connection| connection.execute("COMMIT").await.map(drop)).await {
            Ok(()) => {
                if let Some(loan) = self.loan.take() {
                    loan.keep();
                }
                Ok(())
            }
            // It may have been committed, so it must not run again.
            Err(StoreError::Unreachable(cause)) => {
                Err(StoreError::fault(format!("the connection was lost during the commit of {}: {cause}", self.name)))
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
