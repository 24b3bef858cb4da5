//! Cache of verified files, so that each blob is hashed once rather than at every read.

use std::collections::HashMap;
use std::fs::Metadata;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use federation::id::Digest;

/// Maximum number of verdicts; when exceeded, all are dropped and established anew.
const REMEMBERED_MAX: usize = 4096;

/// Identity of a file's content: any write changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    size: u64,
    #[cfg(unix)]
    place: (u64, u64),
    #[cfg(unix)]
    changed: (i64, i64, i64, i64),
    #[cfg(not(unix))]
    changed: Option<std::time::SystemTime>,
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            Self {
                size: metadata.len(),
                place: (metadata.dev(), metadata.ino()),
                changed: (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()),
            }
        }
        #[cfg(not(unix))]
        Self { size: metadata.len(), changed: metadata.modified().ok() }
    }
}

/// Verdicts of this process. Clones share them. Damage without a write is noticed by the next process, and by
/// participants that download the file.
#[derive(Clone, Default)]
pub(super) struct Verdicts(Arc<Mutex<HashMap<Digest, (Identity, bool)>>>);

impl Verdicts {
    /// Whether this file holds the blob; `None` if it was not verified since it was touched.
    pub(super) fn of(&self, digest: Digest, file: Identity) -> Option<bool> {
        self.lock().get(&digest).filter(|(known, _)| *known == file).map(|(_, is_whole)| *is_whole)
    }

    pub(super) fn remember(&self, digest: Digest, file: Identity, is_whole: bool) {
        let mut verdicts = self.lock();
        if verdicts.len() >= REMEMBERED_MAX {
            verdicts.clear();
        }
        verdicts.insert(digest, (file, is_whole));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, (Identity, bool)>> {
        // The map stays consistent after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
