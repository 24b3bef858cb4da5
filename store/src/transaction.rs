//! Transactions: named, atomic, and retried after interference by another writer.

use std::any::Any;
use std::pin::Pin;

use federation::event::{Actor, Event};
use federation::id::Digest;
use federation::time::Timestamp;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::driver::{Backend, Bind, Driver, Extent, FromRow, Mode, Query, Record, Take};
use crate::error::{Result, StoreError};

/// Requests the time: see [`Query::sql`].
pub(crate) const NOW: &str = "SELECT {now}";

/// A transaction in progress, with the queries and changes of every [`entity`](crate::entity).
pub struct Transaction<'env> {
    driver: Box<dyn Driver + 'env>,
    mode: Mode,
    /// The interference that requires a retry of the whole transaction.
    again: Option<StoreError>,
    /// A blob that a row was to name, and that is doomed.
    doomed: Option<Digest>,
    /// The actor of its changes.
    pub(crate) actor: Actor,
    /// Noted, to be written before the commit.
    pub(crate) events: Vec<Event>,
}

/// The future that a transaction's closure returns.
pub type TransactionFuture<'t, T, E> = Pin<Box<dyn Future<Output = std::result::Result<T, E>> + Send + 't>>;

impl<'env> Transaction<'env> {
    pub(crate) fn new(driver: Box<dyn Driver + 'env>, mode: Mode) -> Self {
        Self { driver, mode, again: None, doomed: None, actor: Actor::Coordinator, events: Vec::new() }
    }

    /// The database's own time at this moment, where several processes share it; `None` where one is alone with it.
    pub async fn time(&mut self) -> Result<Option<Timestamp>> {
        self.get(NOW, ()).await
    }

    /// Changes any number of rows; returns their number.
    pub(crate) async fn change(&mut self, sql: &'static str, arguments: impl Bind) -> Result<u32> {
        self.execute(Query::new(sql, &arguments)?, Extent::Many).await?.try_into().map_err(StoreError::fault)
    }

    /// Changes any number of rows.
    pub(crate) async fn change_all(&mut self, sql: &'static str, arguments: impl Bind) -> Result<()> {
        self.change(sql, arguments).await.map(drop)
    }

    /// Changes the rows of so many keys; returns their number.
    pub(crate) async fn change_of(&mut self, keys: usize, sql: &'static str, arguments: impl Bind) -> Result<u32> {
        self.execute(Query::new(sql, &arguments)?, Extent::of(keys)).await?.try_into().map_err(StoreError::fault)
    }

    /// Changes at most one row; returns whether it did.
    pub(crate) async fn change_one(&mut self, sql: &'static str, arguments: impl Bind) -> Result<bool> {
        match self.execute(Query::new(sql, &arguments)?, Extent::Few).await? {
            0 => Ok(false),
            1 => Ok(true),
            rows => Err(StoreError::corrupt(format!("a change of one row touched {rows}"))),
        }
    }

    /// Changes exactly one row.
    pub(crate) async fn must_change_one(&mut self, sql: &'static str, arguments: impl Bind) -> Result<()> {
        let changed = self.change_one(sql, arguments).await?;
        if changed { Ok(()) } else { Err(StoreError::corrupt("a change of one row touched none")) }
    }

    /// Changes at most one row, and returns its `RETURNING` columns.
    pub(crate) async fn change_returning<T: FromRow>(
        &mut self,
        sql: &'static str,
        arguments: impl Bind,
    ) -> Result<Option<T>> {
        self.check_writable()?;
        self.find(sql, arguments).await
    }

    /// Changes any number of rows, and returns their `RETURNING` columns.
    pub(crate) async fn change_listing<T: FromRow>(
        &mut self,
        sql: &'static str,
        arguments: impl Bind,
    ) -> Result<Vec<T>> {
        self.check_writable()?;
        self.list(sql, arguments).await
    }

    pub(crate) async fn insert<T: Record>(&mut self, record: &T) -> Result<()> {
        self.must_change_one(T::INSERT, record).await
    }

    /// Inserts a record unless there is one with its key; returns whether it did.
    pub(crate) async fn insert_if_absent<T: Record>(&mut self, record: &T) -> Result<bool> {
        self.change_one(T::INSERT_IF_ABSENT, record).await
    }

    /// The first row of a query, if it has any.
    pub(crate) async fn find<T: FromRow>(&mut self, sql: &'static str, arguments: impl Bind) -> Result<Option<T>> {
        self.query(sql, &arguments, Extent::Few).await
    }

    /// The row of a query that always yields one.
    pub(crate) async fn get<T: FromRow>(&mut self, sql: &'static str, arguments: impl Bind) -> Result<T> {
        self.find(sql, arguments).await?.ok_or_else(|| StoreError::fault("a statement yields no row"))
    }

    /// All rows of a query. Each is read before the next one is fetched, for they may be large together.
    pub(crate) async fn list<T: FromRow>(&mut self, sql: &'static str, arguments: impl Bind) -> Result<Vec<T>> {
        self.query(sql, &arguments, Extent::Many).await
    }

    /// The rows of so many keys.
    pub(crate) async fn list_of<T: FromRow>(
        &mut self,
        keys: usize,
        sql: &'static str,
        arguments: impl Bind,
    ) -> Result<Vec<T>> {
        self.query(sql, &arguments, Extent::of(keys)).await
    }

    async fn execute(&mut self, query: Query<'_>, extent: Extent) -> Result<u64> {
        self.check_writable()?;
        let result = self.driver.change(query, extent).await;
        self.note(result)
    }

    async fn query<T: Take + Default>(
        &mut self,
        sql: &'static str,
        arguments: &impl Bind,
        extent: Extent,
    ) -> Result<T> {
        let taker: Box<dyn Any> = self.take(Query::new(sql, arguments)?, extent, Box::new(T::default())).await?;
        taker.downcast::<T>().map(|rows| *rows).map_err(|_| StoreError::fault("the rows of another query"))
    }

    async fn take(&mut self, query: Query<'_>, extent: Extent, taker: Box<dyn Take>) -> Result<Box<dyn Take>> {
        let result = self.driver.query(query, extent, taker).await;
        self.note(result)
    }

    /// A database in memory reads through its writer, which would accept a change and roll it back silently.
    fn check_writable(&self) -> Result<()> {
        match self.mode {
            Mode::Write => Ok(()),
            Mode::Read => Err(StoreError::fault("a change within Store::read; use Store::transact")),
        }
    }

    pub(crate) fn note_doomed(&mut self, blob: Digest) {
        self.doomed = Some(blob);
    }

    fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        match &result {
            Err(StoreError::Busy) => self.again = Some(StoreError::Busy),
            Err(StoreError::Unreachable(cause)) => self.again = Some(StoreError::Unreachable(cause.clone())),
            _ => {}
        }
        result
    }
}

/// Information about a failed transaction in addition to the error.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    /// The blob because of which it failed: it is doomed.
    pub(crate) doomed: Option<Digest>,
    /// Its commit failed, and may have taken place all the same.
    pub(crate) is_uncertain: bool,
    /// It has committed, with events.
    pub(crate) has_events: bool,
}

/// The body of a transaction with its types erased, so that the surrounding code is compiled once.
pub(crate) trait Body<'env>: Send {
    /// Runs it from its beginning; returns whether it returned `Ok`.
    fn run<'t>(&'t mut self, tx: &'t mut Transaction<'env>) -> BoxFuture<'t, bool>;

    /// Replaces the returned value by an error.
    fn fail(&mut self, error: StoreError);
}

/// A transaction's closure, and its last returned value.
pub(crate) struct Closure<F, T, E> {
    body: F,
    returned: Option<std::result::Result<T, E>>,
}

impl<F, T, E: From<StoreError>> Closure<F, T, E> {
    pub(crate) fn new<'env>(body: F) -> Self
    where
        F: for<'t> FnMut(&'t mut Transaction<'env>) -> TransactionFuture<'t, T, E>,
    {
        Self { body, returned: None }
    }

    /// The last returned value, or the error that replaced it.
    pub(crate) fn into_returned(self) -> std::result::Result<T, E> {
        self.returned.unwrap_or_else(|| Err(StoreError::fault("a transaction that was never run").into()))
    }
}

impl<'env, T, E, F> Body<'env> for Closure<F, T, E>
where
    F: for<'t> FnMut(&'t mut Transaction<'env>) -> TransactionFuture<'t, T, E> + Send,
    T: Send,
    E: From<StoreError> + Send,
{
    fn run<'t>(&'t mut self, tx: &'t mut Transaction<'env>) -> BoxFuture<'t, bool> {
        let Self { body, returned } = self;
        let running = body(tx);
        Box::pin(async move { returned.insert(running.await).is_ok() })
    }

    fn fail(&mut self, error: StoreError) {
        self.returned = Some(Err(error.into()));
    }
}

/// Runs `body` in a transaction, and commits if it returns `Ok`. If that fails, `aside` has details.
pub(crate) async fn run<'env>(
    backend: &dyn Backend,
    name: &'static str,
    mode: Mode,
    aside: &mut Aside,
    body: &mut dyn Body<'env>,
) {
    let (mut attempt, mut was_refused, mut lost_at) = (1, false, None);
    loop {
        let turn = backend.turn(name, mode, was_refused).await;
        let cause = match run_once(backend, name, mode, aside, body).await {
            Outcome::Done => return,
            Outcome::Failed(error) => return body.fail(error),
            Outcome::Again(cause) => cause,
        };
        drop(turn);
        was_refused = matches!(cause, StoreError::Busy);
        lost_at = (!was_refused).then(|| lost_at.unwrap_or_else(Instant::now));
        tracing::debug!(transaction = name, attempt, "interrupted: {cause}");
        let reason = if was_refused { "busy" } else { "unreachable" };
        let Some(pause) = backend.pause(attempt, lost_at.map(|at| at.elapsed())) else {
            metrics::counter!("tributary_transactions_given_up_total", "transaction" => name, "reason" => reason)
                .increment(1);
            tracing::warn!(transaction = name, attempts = attempt, "gave up on transaction {name}: {cause}");
            return body.fail(cause);
        };
        metrics::counter!("tributary_transaction_retries_total", "transaction" => name, "reason" => reason)
            .increment(1);
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        attempt += 1;
    }
}

enum Outcome {
    /// As the body returned.
    Done,
    /// The transaction failed with this error, for any result of the body.
    Failed(StoreError),
    /// Another writer, or the loss of a connection, was in the way.
    Again(StoreError),
}

impl Outcome {
    fn failed(error: StoreError) -> Self {
        match error {
            StoreError::Busy | StoreError::Unreachable(_) => Self::Again(error),
            error => Self::Failed(error),
        }
    }
}

async fn run_once<'env>(
    backend: &dyn Backend,
    name: &'static str,
    mode: Mode,
    aside: &mut Aside,
    body: &mut dyn Body<'env>,
) -> Outcome {
    let mut transaction = match backend.begin(name, mode).await {
        Ok(driver) => Transaction::new(driver, mode),
        Err(error) => return Outcome::failed(error),
    };
    let mut is_ok = body.run(&mut transaction).await;
    let mut has_events = false;
    if is_ok && transaction.again.is_none() {
        match transaction.write_events().await {
            Ok(written) => has_events = written,
            Err(error) => {
                is_ok = false;
                body.fail(error);
            }
        }
    }
    aside.doomed = transaction.doomed.filter(|_| !is_ok);
    let Transaction { driver, again, .. } = transaction;
    if again.is_some() || !is_ok {
        // The caller must get the original error; a connection that fails to roll back is not used again.
        if let Err(error) = driver.rollback().await {
            tracing::warn!(%error, "could not roll a transaction back");
        }
        return again.map_or(Outcome::Done, Outcome::Again);
    }
    match driver.commit().await {
        Ok(()) => {
            aside.has_events = has_events;
            Outcome::Done
        }
        Err(error) => {
            let failed = Outcome::failed(error);
            aside.is_uncertain = matches!(failed, Outcome::Failed(_));
            failed
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_trait::async_trait;

    use super::*;
    use crate::driver::MAX_ATTEMPTS;
    use crate::sqlite::SqliteBackend;

    /// A database that is busy for the first few calls.
    struct Flaky {
        database: SqliteBackend,
        busy: AtomicU32,
    }

    #[async_trait]
    impl Backend for Flaky {
        async fn begin(&self, name: &'static str, mode: Mode) -> Result<Box<dyn Driver>> {
            let countdown = |left: u32| left.checked_sub(1);
            match self.busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, countdown) {
                Ok(_) => Err(StoreError::Busy),
                Err(_) => self.database.begin(name, mode).await,
            }
        }

        async fn empty_log(&self) -> Result<()> {
            self.database.empty_log().await
        }

        async fn check(&self) -> Result<()> {
            Ok(())
        }

        async fn problems(&self) -> Result<Vec<String>> {
            self.database.problems().await
        }

        #[cfg(feature = "conformance")]
        async fn limit_pages(&self, pages: u32) -> Result<()> {
            self.database.limit_pages(pages).await
        }

        #[cfg(feature = "conformance")]
        async fn revert_schema(&self) -> Result<()> {
            self.database.revert_schema().await
        }

        #[cfg(feature = "conformance")]
        async fn migrate_schema(&self) -> Result<()> {
            self.database.migrate_schema().await
        }

        #[cfg(feature = "conformance")]
        fn explain(&self) -> &'static str {
            self.database.explain()
        }
    }

    async fn try_with(busy: u32) -> Result<u32> {
        let flaky = Flaky { database: SqliteBackend::open_memory()?, busy: busy.into() };
        let mut runs = 0;
        let mut body = Closure::<_, u32, StoreError>::new(|tx| {
            runs += 1;
            let runs = runs;
            Box::pin(async move { tx.clear_leases().await.map(|_| runs) })
        });
        run(&flaky, "test", Mode::Write, &mut Aside::default(), &mut body).await;
        body.into_returned()
    }

    #[tokio::test]
    async fn a_busy_database_is_tried_again_up_to_the_bound() {
        assert!(matches!(try_with(0).await, Ok(1)));
        assert!(matches!(try_with(MAX_ATTEMPTS - 1).await, Ok(1)));
        assert!(matches!(try_with(MAX_ATTEMPTS).await, Err(StoreError::Busy)));
    }
}
