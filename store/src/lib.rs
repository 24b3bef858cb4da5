//! Durable state: rows and blobs.
//!
//! Everything the coordinator must not lose is behind [`Store`]: rows, changed in named transactions by the statements
//! of [`entity`]; blobs, immutable and addressed by their digest; and [`Wake`], which signals that rows may have changed.
//! A blob is written before its row: the row is the truth, a blob without a row is garbage.
//!
//! This is the only crate that uses SQL. It does not interpret blobs or bodies, and has no rules by which rounds
//! advance: `federation` decides, `coordinator` asks it, and this crate stores the outcome by compare and swap.

mod blob;
#[cfg(feature = "conformance")]
pub mod conformance;
#[macro_use]
mod driver;
pub mod entity;
mod error;
mod fault;
mod postgres;
pub mod private;
mod schema;
mod sqlite;
mod transaction;
mod wake;

use std::path::PathBuf;
use std::sync::Arc;

use federation::time::Clock;

pub use crate::blob::{BlobRead, BlobStore, BlobWriter, VerifiedRead, with_files};
use crate::blob::{DiskBlobs, MemoryBlobs};
use crate::driver::{Backend, Mode};
pub use crate::error::{Result, StoreError};
pub use crate::fault::{Interruption, WriteFate};
use crate::postgres::PostgresBackend;
pub use crate::postgres::PostgresServer;
use crate::sqlite::SqliteBackend;
pub use crate::transaction::{Transaction, TransactionFuture};
pub use crate::wake::{Wake, WakeEvent, WakeSubscription};

/// The location of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// A SQLite file, created with its folder if missing.
    SqliteFile(PathBuf),
    /// A SQLite database in memory, dropped with the last clone of the store.
    SqliteMemory,
    /// A PostgreSQL database, which has to exist; its tables are created if missing.
    Postgres(PostgresServer),
}

/// The location of blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blobs {
    /// A folder, created if missing.
    Disk(PathBuf),
    /// Memory, dropped with the last clone of the store.
    Memory,
}

/// Configuration of [`Store::open`].
#[derive(Clone)]
pub struct StoreConfig {
    pub database: Database,
    pub blobs: Blobs,
    /// Connections that read at once, to PostgreSQL all; a database in memory has one.
    pub connections: u32,
    /// Determines the age of blobs; callers provide the times of rows.
    pub clock: Arc<dyn Clock>,
}

/// Rows and blobs. Clones share them.
#[derive(Clone)]
pub struct Store {
    rows: Arc<dyn Backend>,
    blobs: Arc<dyn BlobStore>,
    wake: Wake,
}

impl Store {
    /// Opens rows and blobs, creates what is missing, and migrates the database to the newest schema.
    ///
    /// # Errors
    /// `Schema` if the database has a newer schema than this program knows; `Full`; `Busy`; `Corrupt` if the file is
    /// not a database; `Unreachable` if there is no way to a server; `Fault` if a location cannot be reached.
    pub async fn open(config: StoreConfig) -> Result<Self> {
        let rows: Arc<dyn Backend> = match config.database {
            Database::SqliteFile(path) => Arc::new(SqliteBackend::open_file(&path, config.connections).await?),
            Database::SqliteMemory => Arc::new(SqliteBackend::open_memory()?),
            Database::Postgres(server) => Arc::new(PostgresBackend::open(&server, config.connections).await?),
        };
        let blobs: Arc<dyn BlobStore> = match config.blobs {
            Blobs::Disk(folder) => Arc::new(DiskBlobs::open(folder, config.clock).await?),
            Blobs::Memory => Arc::new(MemoryBlobs::new(config.clock)),
        };
        Ok(Self { rows, blobs, wake: Wake::new() })
    }

    /// Runs `body` in a transaction that may change rows: `store.transact("name", |tx| Box::pin(async move { … }))`.
    ///
    /// If `body` returns `Ok`, its changes are durable when this returns; otherwise, or if this future is dropped
    /// before it commits, none of them is kept; if it is dropped while it commits, all or none. If another writer
    /// interferes, `body` runs again, so it must have no effect outside of `tx`. It may hold the only write lock: do not
    /// wait for anything else inside, and never nest transactions. After an error of a statement it must end, too.
    ///
    /// # Errors
    /// Those of `body`; [`StoreError::Busy`] if every attempt met another writer; [`StoreError::Unreachable`]; those of
    /// the commit, after which a [`StoreError::Fault`] leaves open whether a server has committed.
    pub async fn transact<'env, T, E, F>(&self, name: &'static str, body: F) -> std::result::Result<T, E>
    where
        F: for<'t> FnMut(&'t mut Transaction<'env>) -> TransactionFuture<'t, T, E>,
        E: From<StoreError>,
    {
        transaction::run(&*self.rows, name, Mode::Write, body).await
    }

    /// Runs `body` on one consistent state of the rows, concurrently with writers. Changes are rejected. It may run again
    /// from its beginning, so it must have no effect outside of `tx`.
    ///
    /// # Errors
    /// Those of `body`; [`StoreError::Busy`]; [`StoreError::Unreachable`].
    pub async fn read<'env, T, E, F>(&self, name: &'static str, body: F) -> std::result::Result<T, E>
    where
        F: for<'t> FnMut(&'t mut Transaction<'env>) -> TransactionFuture<'t, T, E>,
        E: From<StoreError>,
    {
        transaction::run(&*self.rows, name, Mode::Read, body).await
    }

    /// Erases deleted rows, as far as the medium allows: flushes the write-ahead log to the database, where deleted
    /// data are overwritten, and truncates the log. Does nothing if there is no log, and with PostgreSQL, whose log,
    /// archive and standbys keep what they have: there only what was sealed protects what was deleted.
    ///
    /// # Errors
    /// `Busy` if an earlier state is still being read after a moment: try again. Errors of the disk.
    pub async fn empty_log(&self) -> Result<()> {
        self.rows.empty_log().await
    }

    /// Reads every used page of the database, which may take long; with PostgreSQL whether it answers.
    ///
    /// # Errors
    /// `Corrupt` if it is malformed.
    pub async fn check(&self) -> Result<()> {
        self.rows.check().await
    }

    #[must_use]
    pub fn blobs(&self) -> &Arc<dyn BlobStore> {
        &self.blobs
    }

    /// Publishes and receives notifications that rows may have changed.
    #[must_use]
    pub fn wake(&self) -> &Wake {
        &self.wake
    }
}
