//! Rows in SQLite: one connection writes, several read concurrently (write-ahead log), every commit is flushed.
//!
//! Statements run on the calling thread: a look-up takes a few microseconds, less than handing it to another thread.
//! Statements that may wait for a disk, or take long, run on a blocking thread ([`Loan::run_beside`]).

mod backup;
mod dialect;
mod error;
mod pool;
mod saved;
mod schema;
mod statement;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OpenFlags};

pub use self::backup::CopiedPages;
use self::error::translate;
use self::pool::{Medium, Pool};
use crate::driver::{Backend, Driver, Mode};
use crate::error::{Result, StoreError};
use crate::private;

/// How long SQLite waits for another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long emptying the log waits for readers of an earlier state.
const LOG_TIMEOUT: Duration = Duration::from_millis(500);
/// More than the number of this crate's statements, so that each is prepared once per connection.
const STATEMENTS: usize = 256;

/// A database file, or one in memory.
pub(crate) struct SqliteBackend {
    writer: Pool,
    /// The writer itself for a database in memory, which only one connection can see.
    readers: Pool,
    /// Whether a reader has the database to itself, so that its state is consistent without a transaction.
    reads_alone: bool,
}

impl SqliteBackend {
    /// Opens or creates the file, and migrates it. So many connections read at once.
    pub(crate) async fn open_file(path: &Path, readers: u32) -> Result<Self> {
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || Self::open_file_now(&path, readers)).await.map_err(StoreError::fault)?
    }

    fn open_file_now(path: &Path, count: u32) -> Result<Self> {
        if let Some(folder) = path.parent() {
            private::make_folder(folder)?;
        }
        // SQLite creates its write-ahead log and index with the permissions of the database.
        private::options().write(true).create(true).truncate(false).open(path)?;
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut file = path.to_owned();
            file.as_mut_os_string().push(suffix);
            private::tighten_if_there(&file)?;
        }
        let open =
            |access| Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(translate);
        let writer = prepare(open(OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?)?;
        writer.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").map_err(translate)?;
        schema::migrate(&writer)?;
        let mut readers = Vec::new();
        for _ in 0..count.max(1) {
            readers.push(prepare(open(OpenFlags::SQLITE_OPEN_READ_ONLY)?)?);
        }
        Ok(Self {
            writer: Pool::new(vec![writer], Medium::File),
            readers: Pool::new(readers, Medium::File),
            reads_alone: false,
        })
    }

    /// Opens a file for reading alone: it must exist with the current schema, and stays unchanged.
    pub(crate) async fn open_read_only(path: &Path) -> Result<Self> {
        let path = path.to_owned();
        let open = move || {
            let connection = open_to_read(&path)?;
            schema::must_be_newest(&connection)?;
            let pool = Pool::new(vec![connection], Medium::File);
            Ok(Self { writer: pool.clone(), readers: pool, reads_alone: false })
        };
        tokio::task::spawn_blocking(open).await.map_err(StoreError::fault)?
    }

    /// A new database that lasts as long as the process.
    pub(crate) fn open_memory() -> Result<Self> {
        let connection = prepare(Connection::open_in_memory().map_err(translate)?)?;
        schema::migrate(&connection)?;
        let pool = Pool::new(vec![connection], Medium::Memory);
        Ok(Self { writer: pool.clone(), readers: pool, reads_alone: true })
    }
}

fn open_to_read(path: &Path) -> Result<Connection> {
    let access = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    prepare(Connection::open_with_flags(path, access).map_err(translate)?)
}

/// Copies the database file `from`, which a coordinator may be using, to the new file `to`, and makes the copy durable. It
/// is one file, without a write-ahead log. Blocks the thread.
///
/// # Errors
/// `Schema` if the database has another schema than this program's; `Corrupt` if it is not a database, or malformed;
/// `Full`; `Busy`; `Fault` if a file cannot be opened, or `to` exists. After an error the file `to` is of no use.
pub fn copy_database(from: &Path, to: &Path, on_progress: impl FnMut(CopiedPages)) -> Result<()> {
    backup::copy(open_to_read(from)?, to, on_progress)
}

fn prepare(connection: Connection) -> Result<Connection> {
    connection.busy_timeout(BUSY_TIMEOUT).map_err(translate)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Overwrites deleted data: shares, sealed messages and seeds of noise must not remain in free pages.
    connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON").map_err(translate)?;
    Ok(connection)
}

#[async_trait]
impl Backend for SqliteBackend {
    async fn begin(&self, _: &'static str, mode: Mode) -> Result<Box<dyn Driver>> {
        let pool = match mode {
            Mode::Read => &self.readers,
            Mode::Write => &self.writer,
        };
        let mut loan = pool.lend().await?;
        if mode == Mode::Write || !self.reads_alone {
            loan.begin(mode).await?;
        }
        Ok(Box::new(loan))
    }

    async fn empty_log(&self) -> Result<()> {
        let empty = |connection: &Connection| {
            // Writers wait for this, so the timeout is shorter than for a lock.
            connection.busy_timeout(LOG_TIMEOUT).map_err(translate)?;
            let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
            let blocked = connection.query_row(checkpoint, [], |row| row.get::<_, bool>(0)).map_err(translate);
            connection.busy_timeout(BUSY_TIMEOUT).map_err(translate)?;
            if blocked? { Err(StoreError::Busy) } else { Ok(()) }
        };
        self.writer.lend().await?.run_beside(empty).await
    }

    async fn check(&self) -> Result<()> {
        let check = |connection: &Connection| {
            let first = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get::<_, String>(0));
            match first.map_err(translate)?.as_str() {
                "ok" => Ok(()),
                problem => Err(StoreError::corrupt(problem)),
            }
        };
        self.readers.lend().await?.run_beside(check).await
    }

    async fn problems(&self) -> Result<Vec<String>> {
        self.readers.lend().await?.run_beside(backup::problems).await
    }

    #[cfg(feature = "conformance")]
    async fn limit_pages(&self, pages: u32) -> Result<()> {
        let statement = format!("PRAGMA max_page_count = {pages}");
        self.writer.lend().await?.run(|connection| connection.execute_batch(&statement).map_err(translate))
    }

    #[cfg(feature = "conformance")]
    async fn revert_schema(&self) -> Result<()> {
        self.writer.lend().await?.run(schema::revert)
    }

    #[cfg(feature = "conformance")]
    async fn migrate_schema(&self) -> Result<()> {
        self.writer.lend().await?.run(schema::migrate)
    }

    #[cfg(feature = "conformance")]
    fn explain(&self) -> &'static str {
        "EXPLAIN QUERY PLAN"
    }
}
