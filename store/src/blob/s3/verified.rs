//! Copies of verified objects in local files, for as long as they are used: an object is not fetched for each piece that
//! is read of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use federation::id::Digest;
use federation::time::Timestamp;
use futures_util::StreamExt as _;
use object_store::ObjectMeta;

use super::bucket::{Bucket, PIECE, other_bytes};
use crate::blob::BlobRead;
use crate::blob::disk::DiskBlobs;
use crate::blob::spool::Spooled;
use crate::error::Result;

/// A copy that was unused for this time is removed at the next access to any copy, because it may be an unmasked
/// input.
const UNUSED_MAX: Duration = Duration::from_secs(60);
/// The object is looked at again after this time: it may have been replaced or lost.
const LOOKED_MAX: Duration = Duration::from_secs(10);

pub(super) struct VerifiedCopies {
    files: DiskBlobs,
    bytes_max: u64,
    kept: Mutex<HashMap<Digest, CachedCopy>>,
    /// Held while an object is fetched, so that others wait instead of fetching it too.
    fetching: tokio::sync::Mutex<()>,
}

struct CachedCopy {
    copy: Arc<Spooled>,
    object: Identity,
    used: Timestamp,
    looked: Timestamp,
}

/// Attributes that change when an object is written.
#[derive(PartialEq, Eq)]
struct Identity {
    etag: Option<String>,
    modified_s: i64,
    size: u64,
}

impl From<&ObjectMeta> for Identity {
    fn from(object: &ObjectMeta) -> Self {
        Self { etag: object.e_tag.clone(), modified_s: object.last_modified.timestamp(), size: object.size }
    }
}

impl VerifiedCopies {
    pub(super) fn new(files: DiskBlobs, bytes_max: u64) -> Self {
        Self { files, bytes_max, kept: Mutex::default(), fetching: tokio::sync::Mutex::default() }
    }

    /// A reader of a blob whose bytes have the digest.
    pub(super) async fn open(&self, bucket: &Bucket, digest: Digest) -> Result<Box<dyn BlobRead>> {
        if let Some(copy) = self.known(digest, bucket.now()) {
            return Spooled::open(copy).await;
        }
        let _one_fetches = self.fetching.lock().await;
        let now = bucket.now();
        if let Some(copy) = self.known(digest, now) {
            return Spooled::open(copy).await;
        }
        if let Some(copy) = self.confirm(bucket, digest, now).await? {
            return Spooled::open(copy).await;
        }
        let (copy, object) = self.fetch(bucket, digest).await?;
        let copy = Arc::new(copy);
        self.keep(
            digest,
            CachedCopy { copy: Arc::clone(&copy), object: Identity::from(&object), used: now, looked: now },
        );
        Spooled::open(copy).await
    }

    pub(super) fn forget(&self, digest: Digest) {
        self.lock().remove(&digest);
    }

    /// A copy whose object was looked at lately.
    fn known(&self, digest: Digest, now: Timestamp) -> Option<Arc<Spooled>> {
        let mut kept = self.lock();
        kept.retain(|_, kept| now.since(kept.used) < UNUSED_MAX);
        let found = kept.get_mut(&digest).filter(|kept| now.since(kept.looked) < LOOKED_MAX)?;
        found.used = now;
        Some(Arc::clone(&found.copy))
    }

    /// A copy whose object was not written since; forgotten if it was.
    async fn confirm(&self, bucket: &Bucket, digest: Digest, now: Timestamp) -> Result<Option<Arc<Spooled>>> {
        if !self.lock().contains_key(&digest) {
            return Ok(None);
        }
        let object = bucket.head(digest).await?.map(|object| Identity::from(&object));
        let mut kept = self.lock();
        match kept.get_mut(&digest) {
            Some(found) if object.as_ref() == Some(&found.object) => {
                (found.used, found.looked) = (now, now);
                Ok(Some(Arc::clone(&found.copy)))
            }
            _ => {
                kept.remove(&digest);
                Ok(None)
            }
        }
    }

    async fn fetch(&self, bucket: &Bucket, digest: Digest) -> Result<(Spooled, ObjectMeta)> {
        let (first, object) = bucket.first(digest, PIECE).await?;
        let mut file = self.files.spool().await?;
        let mut pieces = std::pin::pin!(bucket.rest(digest, first.len() as u64, object.size));
        file.append(first).await?;
        while let Some(piece) = pieces.next().await {
            file.append(piece?).await?;
        }
        let (found, copy) = file.finish(|digest, spooled| Ok((digest, spooled))).await?;
        if found == digest { Ok((copy, object)) } else { Err(other_bytes(digest)) }
    }

    /// Keeps a copy, and makes room for it.
    fn keep(&self, digest: Digest, new: CachedCopy) {
        let mut kept = self.lock();
        let room = self.bytes_max.saturating_sub(new.copy.bytes);
        while kept.values().map(|kept| kept.copy.bytes).sum::<u64>() > room {
            let Some(oldest) = kept.iter().min_by_key(|(_, kept)| kept.used).map(|(digest, _)| *digest) else { break };
            kept.remove(&oldest);
        }
        kept.insert(digest, new);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, CachedCopy>> {
        // The map stays consistent after a panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
