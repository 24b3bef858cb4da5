//! Errors of the store, by how a caller handles them.

use std::error::Error;
use std::io;

use federation::id::Digest;

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Reasons a transaction or a blob operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The change violates a constraint of the schema: a name or key that already exists, or a reference to a missing
    /// row.
    #[error("the change contradicts what is stored: {0}")]
    Conflict(String),
    /// Another writer holds the database; the same call may succeed later. `transact` has already retried several
    /// times.
    #[error("the database is busy, try again")]
    Busy,
    /// The database cannot be reached. The operation was rolled back; `transact` and `read` have already retried
    /// several times.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// The database's server rejects the user, the password or the database's name, or TLS with it fails. Not retried.
    #[error("no access to the database: {0}; check its URL, the password and the server's pg_hba.conf")]
    NoAccess(String),
    /// The store of blobs cannot be reached, or rejects every request. All data are kept, and the same call may succeed
    /// later.
    #[error("the store of blobs does not serve: {0}")]
    BlobsAway(String),
    /// The disk, or the database's size limit, is full. The operation was rolled back.
    #[error("no space left for stored state: make room, then try again")]
    Full,
    /// The process or the system has reached its limit of open files. The same call may succeed later.
    #[error("too many files are open, try again")]
    TooManyFiles,
    /// The disk or the file is read-only. The operation was rolled back.
    #[error("stored state is read-only: mount its disk for writing, or give its files to this user")]
    ReadOnly,
    /// A row or a blob is not as it was written.
    #[error("stored state is damaged: {0}")]
    Corrupt(#[source] Box<dyn Error + Send + Sync>),
    /// The store lacks a blob of this digest. If a row refers to it, it was lost.
    #[error("blob {0} is not stored")]
    MissingBlob(Digest),
    /// Garbage collection removes this blob, or has removed it: store it again, then name it.
    #[error("blob {0} was garbage and is removed: store it again")]
    BeingRemoved(Digest),
    /// The database's schema does not fit this program.
    #[error("{0}")]
    Schema(String),
    /// An unexpected failure; for the log, not for a peer.
    #[error("unexpected failure of the store")]
    Fault(#[source] Box<dyn Error + Send + Sync>),
}

/// Unreadable data, and the cause.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
struct Unreadable {
    what: String,
    source: Box<dyn Error + Send + Sync>,
}

impl StoreError {
    /// [`StoreError::Corrupt`], because of an error or in these words.
    pub fn corrupt(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Corrupt(cause.into())
    }

    /// [`StoreError::Corrupt`], because reading `what` failed.
    pub fn unreadable(what: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::corrupt(Unreadable { what: what.into(), source: source.into() })
    }

    pub fn fault(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Fault(source.into())
    }
}

/// `ENFILE` and `EMFILE`, the same numbers on every Unix; `io::ErrorKind` does not name them.
const TOO_MANY_FILES: [i32; 2] = [23, 24];

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        // A reader of a remote blob wraps its store's error.
        let error = match error.downcast::<Self>() {
            Ok(error) => return error,
            Err(error) => error,
        };
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            _ if cfg!(unix) && error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code)) => {
                Self::TooManyFiles
            }
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            _ => Self::fault(error),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_a_reader_wraps_stays_what_it_is() {
        let wrapped = io::Error::other(StoreError::BlobsAway("why".to_owned()));
        assert!(matches!(wrapped.into(), StoreError::BlobsAway(why) if why == "why"));
    }

    #[test]
    fn a_lack_of_files_is_told_from_faults() {
        for code in TOO_MANY_FILES {
            assert!(matches!(io::Error::from_raw_os_error(code).into(), StoreError::TooManyFiles));
        }
        // EIO.
        assert!(matches!(io::Error::from_raw_os_error(5).into(), StoreError::Fault(_)));
    }
}
