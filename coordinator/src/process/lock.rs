//! One coordinator per data folder: file locks, released when the process ends.
//!
//! Two coordinators on one database would take each other's leases; two on one blob folder would delete each other's blobs as garbage.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use federation::time::Timestamp;
use store::private;

use crate::process::host::host;

/// Maximum length of a holder's description.
const HOLDER_MAX: u64 = 300;

/// Reasons why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error(
        "another coordinator works on this data ({path} is locked by {holder}); stop it first, or give this one a \
         database and a folder of blobs of its own"
    )]
    Held {
        path: PathBuf,
        /// Process, host and start time, as far as known.
        holder: String,
    },
    /// A restore was interrupted.
    #[error("a backup was being restored to {0} and did not get to its end: run `tributary restore` again")]
    HalfRestored(PathBuf),
    /// The file cannot be created or locked.
    #[error("cannot lock {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// File locks, held until released or dropped, or until the process ends.
#[derive(Debug, Default)]
pub(crate) struct Locks(Vec<File>);

impl Locks {
    /// Locks all of these files or none; creates missing files and folders.
    ///
    /// # Errors
    /// [`LockError`].
    pub(crate) fn take(paths: &[PathBuf], now: Timestamp) -> Result<Self, LockError> {
        let holder = format!("process {} on {}, since {now}", std::process::id(), machine());
        paths.iter().map(|path| lock(path, &holder)).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn release(&self) {
        for file in &self.0 {
            if let Err(error) = file.unlock() {
                tracing::warn!(%error, "could not release a lock; it ends with this process");
            }
        }
    }
}

fn lock(path: &Path, holder: &str) -> Result<File, LockError> {
    let io = |source| LockError::Io { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        private::make_folder(folder).map_err(io)?;
    }
    // Not truncated on opening: it may name the holder.
    let mut file = private::options().read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => {
            // Only the lock matters. On a full disk the file names no holder.
            if let Err(error) = write(&mut file, holder) {
                tracing::warn!(%error, path = %path.display(), "the lock cannot say who holds it");
            }
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => Err(LockError::Held { path: path.to_owned(), holder: read(&mut file) }),
        Err(TryLockError::Error(source)) => Err(io(source)),
    }
}

fn write(file: &mut File, holder: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{holder}")
}

fn read(file: &mut File) -> String {
    let mut holder = String::new();
    match file.take(HOLDER_MAX).read_to_string(&mut holder) {
        Ok(_) if !holder.trim().is_empty() => holder.trim().to_owned(),
        _ => "a process that left no name".to_owned(),
    }
}

/// The machine's name among others with the same folder.
fn machine() -> String {
    host().unwrap_or_else(|| "a host without a name".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_the_first_is() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("a/one.lock"), folder.path().join("b/two.lock")];
        let first = Locks::take(&paths, Timestamp(1_750_000_000_000)).unwrap();
        let refused = Locks::take(&paths[1..], Timestamp(1_750_000_001_000)).unwrap_err();
        let told = refused.to_string();
        let (pid, since) = (std::process::id().to_string(), Timestamp(1_750_000_000_000).to_string());
        for part in ["two.lock", &pid, &machine(), &since] {
            assert!(told.contains(part), "{part} is missing in {told}");
        }
        first.release();
        let second = Locks::take(&paths, Timestamp(1_750_000_002_000)).unwrap();
        let told = Locks::take(&paths, Timestamp(0)).unwrap_err().to_string();
        assert!(told.contains(&Timestamp(1_750_000_002_000).to_string()) && !told.contains(&since), "{told}");
        drop(second);
        Locks::take(&paths, Timestamp(0)).unwrap();
    }

    #[test]
    fn who_cannot_lock_all_locks_none() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one.lock"), folder.path().join("two.lock"));
        let first = Locks::take(std::slice::from_ref(&two), Timestamp(0)).unwrap();
        assert!(Locks::take(&[one.clone(), two], Timestamp(0)).is_err());
        Locks::take(&[one], Timestamp(0)).unwrap();
        first.release();
    }
}
