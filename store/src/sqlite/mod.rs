//! Rows in SQLite: one connection writes, several read beside it (write-ahead log), every commit is flushed.

mod admitted;
mod assignment;
mod blob_reference;
mod check_in;
mod error;
mod idempotency;
mod lease;
mod model_version;
mod noised_sum;
mod partial_sum;
mod participant;
mod pool;
mod privacy_ledger;
mod round;
mod row;
mod sampled;
mod schema;
mod secret;
mod session;
mod session_message;
mod task;
mod token;
mod training;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Sqlite};

use self::error::translate;
use self::pool::{Loan, Pool};
use crate::error::{Result, StoreError};
use crate::transaction::{Backend, Mode, OpenTransaction, Transaction};

/// Connections that read beside the one that writes.
const READERS: usize = 4;
/// How long SQLite itself waits for another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// More than this crate has statements, so that each is prepared once per connection.
const STATEMENTS: usize = 256;

/// A query with its arguments.
type Query<'q> = sqlx::query::Query<'q, Sqlite, SqliteArguments>;

/// A database file, or one in memory.
pub(crate) struct SqliteBackend {
    writer: Pool,
    /// The writer itself for a database in memory, which one connection alone can see.
    readers: Pool,
    /// Whether who reads has the database to itself, and so needs no transaction to see one state of it.
    reads_alone: bool,
}

impl SqliteBackend {
    /// Opens or creates the file, and migrates it.
    pub(crate) async fn open_file(path: &Path) -> Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let options = options().filename(path);
        let mut writer = options
            .clone()
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .connect()
            .await
            .map_err(translate)?;
        schema::migrate(&mut writer).await?;
        let mut readers = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            readers.push(options.clone().read_only(true).connect().await.map_err(translate)?);
        }
        Ok(Self { writer: Pool::new(vec![writer]), readers: Pool::new(readers), reads_alone: false })
    }

    /// A new database that goes with the process.
    pub(crate) async fn open_memory() -> Result<Self> {
        let mut connection = options().in_memory(true).connect().await.map_err(translate)?;
        schema::migrate(&mut connection).await?;
        let pool = Pool::new(vec![connection]);
        Ok(Self { writer: pool.clone(), readers: pool, reads_alone: true })
    }
}

fn options() -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .statement_cache_capacity(STATEMENTS)
        // What is deleted is overwritten: shares, sealed messages and seeds of noise must not linger in free pages.
        .pragma("secure_delete", "ON")
        .disable_statement_logging()
}

#[async_trait]
impl Backend for SqliteBackend {
    async fn begin(&self, mode: Mode) -> Result<Box<dyn OpenTransaction>> {
        let (pool, statement) = match mode {
            Mode::Read => (&self.readers, "BEGIN DEFERRED"),
            // Taking the write lock first means that nothing after it can meet another writer.
            Mode::Write => (&self.writer, "BEGIN IMMEDIATE"),
        };
        let mut loan = pool.lend().await?;
        match mode {
            Mode::Read if self.reads_alone => loan.begin_nothing().await,
            _ => loan.begin(statement).await?,
        }
        Ok(Box::new(SqliteTransaction { loan, mode, busy: false }))
    }

    #[cfg(feature = "conformance")]
    async fn limit_pages(&self, pages: u32) -> Result<()> {
        let mut loan = self.writer.lend().await?;
        let statement = sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
        sqlx::query(statement).execute(loan.connection()?).await.map_err(translate)?;
        Ok(())
    }

    #[cfg(feature = "conformance")]
    async fn revert_schema(&self) -> Result<()> {
        schema::revert(self.writer.lend().await?.connection()?).await
    }

    #[cfg(feature = "conformance")]
    async fn migrate_schema(&self) -> Result<()> {
        schema::migrate(self.writer.lend().await?.connection()?).await
    }
}

/// One transaction on one connection.
struct SqliteTransaction {
    loan: Loan,
    mode: Mode,
    busy: bool,
}

impl SqliteTransaction {
    /// Runs a query that changes rows; returns how many.
    async fn change(&mut self, query: Query<'_>) -> Result<u64> {
        self.check_writable()?;
        let result = query.execute(self.loan.connection()?).await;
        Ok(self.note(result)?.rows_affected())
    }

    /// Runs a query that changes exactly one row or none; returns whether it did.
    async fn change_one(&mut self, query: Query<'_>) -> Result<bool> {
        match self.change(query).await? {
            0 => Ok(false),
            1 => Ok(true),
            rows => Err(StoreError::Corrupt(format!("a change of one row touched {rows}"))),
        }
    }

    /// Runs a query that changes any number of rows; returns how many.
    async fn count_changes(&mut self, query: Query<'_>) -> Result<u32> {
        u32::try_from(self.change(query).await?).map_err(StoreError::fault)
    }

    /// Runs a query that changes one row or none, and returns what it asks of that row.
    async fn change_returning(&mut self, query: Query<'_>) -> Result<Option<SqliteRow>> {
        self.check_writable()?;
        self.find(query).await
    }

    /// Runs a query that must change exactly one row.
    async fn insert(&mut self, query: Query<'_>) -> Result<()> {
        match self.change(query).await? {
            1 => Ok(()),
            rows => Err(StoreError::Corrupt(format!("an insertion of one row added {rows}"))),
        }
    }

    /// The one row of a query, if there is one.
    async fn find(&mut self, query: Query<'_>) -> Result<Option<SqliteRow>> {
        let result = query.fetch_optional(self.loan.connection()?).await;
        self.note(result)
    }

    /// Every row of a query.
    async fn list(&mut self, query: Query<'_>) -> Result<Vec<SqliteRow>> {
        let result = query.fetch_all(self.loan.connection()?).await;
        self.note(result)
    }

    /// Every row of a query, each read and let go before the next one comes: for rows that are large together.
    async fn collect<T>(&mut self, query: Query<'_>, read: impl Fn(&SqliteRow) -> Result<T>) -> Result<Vec<T>> {
        let mut rows = query.fetch(self.loan.connection()?);
        let mut collected = Vec::new();
        let failed = loop {
            match rows.try_next().await {
                Ok(Some(row)) => collected.push(read(&row)?),
                Ok(None) => return Ok(collected),
                Err(error) => break error,
            }
        };
        drop(rows);
        self.note(Err(failed))
    }

    /// A database in memory reads through its writer, which would let a change pass and then forget it.
    fn check_writable(&self) -> Result<()> {
        match self.mode {
            Mode::Write => Ok(()),
            Mode::Read => Err(StoreError::fault("a change within Store::read; use Store::transact")),
        }
    }

    fn note<T>(&mut self, result: sqlx::Result<T>) -> Result<T> {
        result.map_err(|error| {
            let error = translate(error);
            self.busy |= matches!(error, StoreError::Busy);
            error
        })
    }
}

impl Transaction for SqliteTransaction {}

#[async_trait]
impl OpenTransaction for SqliteTransaction {
    fn must_retry(&self) -> bool {
        self.busy
    }

    async fn commit(mut self: Box<Self>) -> Result<()> {
        self.loan.commit().await
    }

    async fn rollback(mut self: Box<Self>) -> Result<()> {
        self.loan.rollback().await
    }
}
