//! Durable state: rows and blobs.
//!
//! Everything the coordinator must not forget is here, behind [`Store`]: rows, changed in named transactions by the traits
//! of [`entity`]; blobs, immutable and addressed by their digest; and [`Wake`], which says that rows may have changed.
//! Blobs come first and rows second: the row is the truth, a blob without a row is garbage.
//!
//! This is the only crate that speaks SQL. It does not know what a blob or a body means, nor any rule by which rounds
//! advance: `federation` decides, `coordinator` asks it, and this crate keeps the outcome by compare and swap.

mod blob;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod entity;
mod error;
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
pub use crate::error::{Result, StoreError};
use crate::sqlite::SqliteBackend;
use crate::transaction::{Backend, Mode};
pub use crate::transaction::{Transaction, TransactionFuture};
pub use crate::wake::{Wake, WakeEvent, WakeSubscription};

/// Where rows are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// A SQLite file; made if it is missing, with its folder.
    SqliteFile(PathBuf),
    /// A SQLite database in memory, gone with the last clone of the store.
    SqliteMemory,
}

/// Where blobs are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blobs {
    /// A folder; made if it is missing.
    Disk(PathBuf),
    /// Memory, gone with the last clone of the store.
    Memory,
}

/// What [`Store::open`] needs to know.
#[derive(Clone)]
pub struct StoreConfig {
    /// Where rows are kept.
    pub database: Database,
    /// Where blobs are kept.
    pub blobs: Blobs,
    /// Tells the age of blobs; rows get their times from the caller.
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
    /// Opens rows and blobs, makes what is missing, and migrates the database to the newest schema.
    ///
    /// # Errors
    /// `Schema` if the database has a newer schema than this program knows; `Full`; `Busy`; `Corrupt` if the file is not
    /// a database; `Fault` if a place cannot be reached.
    pub async fn open(config: StoreConfig) -> Result<Self> {
        let rows = match config.database {
            Database::SqliteFile(path) => SqliteBackend::open_file(&path).await?,
            Database::SqliteMemory => SqliteBackend::open_memory()?,
        };
        let blobs: Arc<dyn BlobStore> = match config.blobs {
            Blobs::Disk(folder) => Arc::new(DiskBlobs::open(folder, config.clock).await?),
            Blobs::Memory => Arc::new(MemoryBlobs::new(config.clock)),
        };
        Ok(Self { rows: Arc::new(rows), blobs, wake: Wake::new() })
    }

    /// Runs `body` in a transaction that may change rows: `store.transact("name", |tx| Box::pin(async move { … }))`.
    ///
    /// If `body` returns `Ok`, its changes are durable when this returns; otherwise, or if this future is dropped before it
    /// commits, none of them is kept; if it is dropped while it commits, all or none. When another writer is in the way,
    /// `body` runs again, so it must have no effect outside of `tx`. It holds the only write lock: do not wait for anything
    /// else inside, and never start a transaction in a transaction.
    ///
    /// # Errors
    /// What `body` returns; [`StoreError::Busy`] when every try met another writer; what committing may meet.
    pub async fn transact<'env, T, E, F>(&self, name: &'static str, body: F) -> std::result::Result<T, E>
    where
        F: for<'t> FnMut(&'t mut (dyn Transaction + 'env)) -> TransactionFuture<'t, T, E>,
        E: From<StoreError>,
    {
        transaction::run(&*self.rows, name, Mode::Write, body).await
    }

    /// Runs `body` on one consistent state of the rows, beside whatever is being written. Changes are refused.
    ///
    /// # Errors
    /// What `body` returns; [`StoreError::Busy`].
    pub async fn read<'env, T, E, F>(&self, name: &'static str, body: F) -> std::result::Result<T, E>
    where
        F: for<'t> FnMut(&'t mut (dyn Transaction + 'env)) -> TransactionFuture<'t, T, E>,
        E: From<StoreError>,
    {
        transaction::run(&*self.rows, name, Mode::Read, body).await
    }

    /// Makes an end of rows that were deleted, but for what the medium keeps: everything in the log of writes goes to the database,
    /// where what is deleted is overwritten, and the log is cut to nothing. Does nothing where there is no such log.
    ///
    /// # Errors
    /// `Busy` if somebody still reads an earlier state after a moment: try again. What the disk may meet.
    pub async fn empty_log(&self) -> Result<()> {
        self.rows.empty_log().await
    }

    /// Reads every page of the database that is in use, in the time that takes.
    ///
    /// # Errors
    /// `Corrupt` if it is malformed.
    pub async fn check(&self) -> Result<()> {
        self.rows.check().await
    }

    /// The blobs.
    #[must_use]
    pub fn blobs(&self) -> &Arc<dyn BlobStore> {
        &self.blobs
    }

    /// Where to say, and to hear, that rows may have changed.
    #[must_use]
    pub fn wake(&self) -> &Wake {
        &self.wake
    }
}
