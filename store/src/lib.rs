//! Durable state: rows and blobs.
//!
//! Everything the coordinator must not lose is behind [`Store`]: rows, changed in named transactions by the statements
//! of [`entity`]; blobs, immutable and addressed by their digest; and [`Wake`], which signals that rows may have changed.
//! A blob is written before its row: the row is the truth, a blob without a row is garbage.
//!
//! This is the only crate that uses SQL. It treats blobs and bodies as bytes, and leaves the advance of rounds to
//! others: `federation` decides, `coordinator` calls it, and this crate stores the outcome by compare and swap.

mod blob;
#[cfg(feature = "conformance")]
pub mod conformance;
#[macro_use]
mod driver;
pub mod entity;
mod error;
mod fault;
mod postgres;
mod schema;
mod sqlite;
mod transaction;
mod wake;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use federation::id::Digest;
use federation::time::{Clock, Timestamp};
use futures_util::future::BoxFuture;

pub use crate::blob::{
    BlobRead, BlobStore, BlobWriter, KeepsVersions, PartsRead, S3Config, S3Credentials, Seen, SmallObjects,
    VerifiedRead, place_of, transfer, with_files,
};
use crate::blob::{DiskBlobs, MemoryBlobs, Place, ReplicatedBlobs, S3Blobs};
use crate::driver::{Backend, Mode};
use crate::entity::doomed::Removal;
pub use crate::error::{Result, StoreError};
pub use crate::fault::{Interruption, Pulse, SavedRows, WriteFate};
use crate::postgres::PostgresBackend;
pub use crate::postgres::PostgresServer;
use crate::sqlite::SqliteBackend;
pub use crate::sqlite::{CopiedPages, copy_database};
use crate::transaction::{Aside, Body, Closure};
pub use crate::transaction::{Transaction, TransactionFuture};
pub use crate::wake::{Wake, WakeEvent, WakeSubscription};
pub use private_files as private;

/// How often, and after which pause, a blob's removal is looked at that is under way.
const REMOVAL_LOOKS: u32 = 20;
const REMOVAL_PAUSE: Duration = Duration::from_millis(50);

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
    /// A bucket that exists, of an S3-compatible store.
    S3(S3Config),
    /// The same blobs in several places. A blob that the primary rejects is not stored. Another copy that was away gets
    /// the missing blobs when it is back.
    Replicated { primary: Box<Blobs>, others: Vec<Blobs> },
}

/// As in a configuration.
impl fmt::Display for Blobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(folder) => write!(f, "file:{}", folder.display()),
            Self::Memory => f.write_str("memory:"),
            Self::S3(S3Config { bucket, prefix, .. }) if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3(S3Config { bucket, prefix, .. }) => write!(f, "s3://{bucket}/{prefix}"),
            Self::Replicated { primary, .. } => primary.fmt(f),
        }
    }
}

impl Blobs {
    /// The folders among its places.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        let (first, others) = match self {
            Self::Replicated { primary, others } => (&**primary, others.as_slice()),
            Self::Disk(_) | Self::Memory | Self::S3(_) => (self, [].as_slice()),
        };
        std::iter::once(first).chain(others).filter_map(|place| match place {
            Self::Disk(folder) => Some(folder.as_path()),
            Self::Memory | Self::S3(_) | Self::Replicated { .. } => None,
        })
    }

    /// Opens the blobs by themselves, and creates what is missing. `clock` determines their age.
    ///
    /// # Errors
    /// `Fault` if the location cannot be reached; `Full`; `ReadOnly`.
    pub fn open(self, clock: Arc<dyn Clock>) -> BoxFuture<'static, Result<Arc<dyn BlobStore>>> {
        Box::pin(async move {
            Ok(match self {
                Self::Disk(folder) => Arc::new(DiskBlobs::open(folder, clock).await?) as Arc<dyn BlobStore>,
                Self::Memory => Arc::new(MemoryBlobs::new(clock)),
                Self::S3(s3) => Arc::new(S3Blobs::open(s3, clock).await?),
                Self::Replicated { primary, others } => {
                    let place = |place: Self| {
                        let clock = Arc::clone(&clock);
                        Place {
                            name: place.to_string(),
                            open: Box::new(move || place.clone().open(Arc::clone(&clock))),
                        }
                    };
                    let others = others.into_iter().map(place).collect();
                    Arc::new(ReplicatedBlobs::open(place(*primary), others, Arc::clone(&clock)).await?)
                }
            })
        })
    }
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
    is_shared: bool,
}

impl Store {
    /// Opens rows and blobs, creates missing parts, and migrates the database to the newest schema.
    ///
    /// # Errors
    /// `Schema` if the database has a newer schema than this program supports; `Full`; `Busy`; `Corrupt` if the file is
    /// not a database; `Unreachable` if a server cannot be reached; `NoAccess` if it rejects the user or the database;
    /// `Fault` if a location cannot be reached.
    pub fn open(config: StoreConfig) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            let alone = |rows: Arc<dyn Backend>| (rows, Wake::new(), false);
            let (rows, wake, is_shared) = match config.database {
                Database::SqliteFile(path) => {
                    alone(Arc::new(SqliteBackend::open_file(&path, config.connections).await?))
                }
                Database::SqliteMemory => alone(Arc::new(SqliteBackend::open_memory()?)),
                Database::Postgres(server) => {
                    let rows = PostgresBackend::open(&server, config.connections).await?;
                    let wake = Wake::over(rows.bus(&server), rows.process());
                    (Arc::new(rows) as Arc<dyn Backend>, wake, true)
                }
            };
            let blobs = config.blobs.open(config.clock).await?;
            Ok(Self { rows, blobs, wake, is_shared })
        })
    }

    /// Opens a database file of SQLite, in use or not, only to read its rows, and the blobs next to it. Migrations are
    /// left out.
    ///
    /// # Errors
    /// `Schema` if the database has another schema than this program's; `Corrupt` if the file is not a database; `Fault`
    /// if a location cannot be reached.
    pub async fn open_to_read(database: &Path, blobs: Arc<dyn BlobStore>) -> Result<Self> {
        let rows = SqliteBackend::open_read_only(database).await?;
        Ok(Self { rows: Arc::new(rows), blobs, wake: Wake::new(), is_shared: false })
    }

    /// The same of a database on any backend. Over PostgreSQL `connections` read at once.
    ///
    /// # Errors
    /// As for [`Store::open_to_read`]; `Unreachable` if a server cannot be reached; `NoAccess` if it rejects the user
    /// or the database; `Fault` for a database in memory, which only its creator can open.
    pub async fn open_rows_to_read(database: &Database, connections: u32, blobs: Arc<dyn BlobStore>) -> Result<Self> {
        let server = match database {
            Database::SqliteFile(path) => return Self::open_to_read(path, blobs).await,
            Database::SqliteMemory => return Err(StoreError::fault("a database in memory ends with its process")),
            Database::Postgres(server) => server,
        };
        let rows = PostgresBackend::open_to_read(server, connections).await?;
        Ok(Self { rows: Arc::new(rows), blobs, wake: Wake::new(), is_shared: true })
    }

    /// Runs `body` in a transaction that may change rows: `store.transact("name", |tx| Box::pin(async move { … }))`.
    ///
    /// If `body` returns `Ok`, its changes are durable when this returns; otherwise, or if this future is dropped
    /// before it commits, all of them are rolled back. If it is dropped while it commits, all changes are kept or all
    /// are rolled back. If another writer interferes, or `body` names a blob that was garbage and is stored again,
    /// `body` runs again, so its only effects must be changes in `tx`. It may hold the only write lock: do not wait for
    /// anything else inside, and do not nest transactions. After an error of a statement it must end, too.
    ///
    /// # Errors
    /// Those of `body`; [`StoreError::Busy`] if every attempt met another writer; [`StoreError::Unreachable`]; those of
    /// the commit, after which a [`StoreError::Fault`] leaves open whether a server has committed, and [`WakeEvent::Lost`] is
    /// published.
    pub async fn transact<'env, T, E, F>(&self, name: &'static str, body: F) -> std::result::Result<T, E>
    where
        F: for<'t> FnMut(&'t mut Transaction<'env>) -> TransactionFuture<'t, T, E> + Send,
        T: Send,
        E: From<StoreError> + Send,
    {
        let mut body = Closure::new(body);
        self.write(name, &mut body).await;
        body.into_returned()
    }

    fn write<'a, 'env: 'a>(&'a self, name: &'static str, body: &'a mut (dyn Body<'env> + 'a)) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            loop {
                let mut aside = Aside::default();
                transaction::run(&*self.rows, name, Mode::Write, &mut aside, body).await;
                if aside.is_uncertain {
                    // A failed commit may still have been applied; publish the wake-up anyway.
                    self.wake.publish(WakeEvent::Lost);
                }
                if aside.has_events {
                    self.wake.publish(WakeEvent::Recorded);
                }
                let Some(blob) = aside.doomed else { return };
                match self.is_stored_again(blob).await {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => return body.fail(error),
                }
            }
        })
    }

    /// Waits for the end of the blob's removal, and returns whether it is stored again, so that it may be named.
    async fn is_stored_again(&self, blob: Digest) -> Result<bool> {
        let find = || self.read("removal", |tx| Box::pin(async move { tx.removal(blob).await }));
        let mut removal = find().await?;
        for _ in 0..REMOVAL_LOOKS {
            if removal != Some(Removal::UnderWay) {
                break;
            }
            tokio::time::sleep(REMOVAL_PAUSE).await;
            removal = find().await?;
        }
        match removal {
            None => Ok(true),
            Some(Removal::UnderWay) => Ok(false),
            Some(Removal::Over) if self.blobs.len(blob).await?.is_none() => Ok(false),
            Some(Removal::Over) => {
                let mut spare = Closure::new(|tx| Box::pin(tx.spare(blob)));
                transaction::run(&*self.rows, "spare_blob", Mode::Write, &mut Aside::default(), &mut spare).await;
                spare.into_returned().map(|_| true)
            }
        }
    }

    /// Runs `body` on one consistent state of the rows, concurrently with writers. Changes are rejected. It may run
    /// again from its beginning, so it must not have effects outside of `tx`.
    ///
    /// # Errors
    /// Those of `body`; [`StoreError::Busy`]; [`StoreError::Unreachable`].
    pub async fn read<'env, T, E, F>(&self, name: &'static str, body: F) -> std::result::Result<T, E>
    where
        F: for<'t> FnMut(&'t mut Transaction<'env>) -> TransactionFuture<'t, T, E> + Send,
        T: Send,
        E: From<StoreError> + Send,
    {
        let mut body = Closure::new(body);
        self.look(name, &mut body).await;
        body.into_returned()
    }

    fn look<'a, 'env: 'a>(&'a self, name: &'static str, body: &'a mut (dyn Body<'env> + 'a)) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            transaction::run(&*self.rows, name, Mode::Read, &mut Aside::default(), body).await;
        })
    }

    /// Erases deleted rows, as far as the medium allows: flushes the write-ahead log to the database, where deleted
    /// data are overwritten, and truncates the log. Has no effect without a log, and with PostgreSQL, whose log,
    /// archive and standbys keep what they have: there only sealing protects deleted data.
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

    /// Reads the whole database and follows every reference between rows, which may take long. Returns the problems in
    /// words; the list is empty if all is well.
    ///
    /// # Errors
    /// `Corrupt` if the database is too malformed to say more.
    pub async fn problems(&self) -> Result<Vec<String>> {
        self.rows.problems().await
    }

    /// The database's own time, where several processes share it; `None` where one is alone with it.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`].
    pub async fn now(&self) -> Result<Option<Timestamp>> {
        self.rows.now().await
    }

    /// Whether other processes may use the same rows at the same time.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.is_shared
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
