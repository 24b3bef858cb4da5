//! What can go wrong with stored state, in the few kinds that a caller treats differently.

use std::error::Error;
use std::io;

use federation::id::Digest;

/// Shorthand used by every trait of this crate.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Why a transaction or a blob operation did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A rule of the schema refused the change: a name or key that exists already, a reference to a row that does not.
    #[error("the change contradicts what is stored: {0}")]
    Conflict(String),
    /// Somebody else holds the database; the same call may succeed later. `transact` has already tried several times.
    #[error("the database is busy, try again")]
    Busy,
    /// The disk, or the room that the database may take, is full. Nothing of the operation was kept.
    #[error("no space left for stored state: make room, then try again")]
    Full,
    /// The process, or the system, has as many files open as it may. The same call may succeed when others are done.
    #[error("too many files are open, try again")]
    TooManyFiles,
    /// The disk, or the file, can be read and not written. Nothing of the operation was kept.
    #[error("stored state can be read and not written: mount its disk for writing, or give its files to this user")]
    ReadOnly,
    /// A row or a blob is not what was once written.
    #[error("stored state is damaged: {0}")]
    Corrupt(#[source] Box<dyn Error + Send + Sync>),
    /// No blob has this digest. If a row refers to it, it was lost.
    #[error("blob {0} is not stored")]
    MissingBlob(Digest),
    /// The database's schema is not one that this program can run on.
    #[error("{0}")]
    Schema(String),
    /// Anything unexpected; for the log, not for a peer.
    #[error("unexpected failure of the store")]
    Fault(#[source] Box<dyn Error + Send + Sync>),
}

/// What cannot be read any more, and why.
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

    /// [`StoreError::Corrupt`], because of what came of reading `what`.
    pub fn unreadable(what: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::corrupt(Unreadable { what: what.into(), source: source.into() })
    }

    /// Wraps what nobody expected.
    pub fn fault(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Fault(source.into())
    }
}

/// `ENFILE` and `EMFILE`, the same numbers on every Unix; `io::ErrorKind` has no name for them.
const TOO_MANY_FILES: [i32; 2] = [23, 24];

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
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
    fn a_lack_of_files_is_told_from_faults() {
        for code in TOO_MANY_FILES {
            assert!(matches!(io::Error::from_raw_os_error(code).into(), StoreError::TooManyFiles));
        }
        // EIO.
        assert!(matches!(io::Error::from_raw_os_error(5).into(), StoreError::Fault(_)));
    }
}
