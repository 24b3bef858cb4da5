//! Which files were found to be their blobs, so that each is hashed once and not with every look into it.

use std::collections::HashMap;
use std::fs::Metadata;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use federation::id::Digest;

/// Verdicts that are remembered; more are forgotten all at once, and made anew.
const REMEMBERED_MAX: usize = 4096;

/// What tells a file that has not been touched from one that has: a write changes it.
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

/// Verdicts of this process. Clones share them. Disks that damage files without anybody writing are noticed by the next
/// process, and by whoever downloads.
#[derive(Clone, Default)]
pub(super) struct Verdicts(Arc<Mutex<HashMap<Digest, (Identity, bool)>>>);

impl Verdicts {
    /// Whether this file holds the blob; nothing if nobody has looked since it was touched.
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
        // A map has no state between two of its calls that a panic could leave behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
