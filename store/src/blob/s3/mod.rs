//! Blobs in an S3-compatible store: `xx/<digest>` below a prefix, as on a disk.
//!
//! A blob's key exists only once all of its bytes were sent and hashed. Bytes that arrive piece by piece wait in a
//! local file until their digest is known, and one request joins the parts of a large object. So a key always has the
//! right bytes, even after a crash. An equal object is replaced, because that resets its age and repairs it.

mod bucket;
mod client;
mod read;
mod small;
mod upload;
mod verified;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::Digest;
use federation::time::Clock;
use futures_util::TryStreamExt as _;
use object_store::ObjectStoreExt as _;

use self::bucket::{Bucket, PIECE, other_bytes, says_absent};
pub use self::bucket::{S3Config, S3Credentials};
use self::read::{FIRST, S3Read};
pub use self::small::{KeepsVersions, Seen, SmallObjects};
use self::upload::{Source, upload_detached};
use self::verified::VerifiedCopies;
use super::disk::DiskBlobs;
use super::spool::Spool;
use super::{BlobRead, BlobStore, BlobWriter, check_expected, sha256};
use crate::error::{Result, StoreError};

/// Blobs in a bucket. Clones share it.
#[derive(Clone)]
pub(crate) struct S3Blobs {
    bucket: Arc<Bucket>,
    /// Files of unfinished uploads and of verified copies. These files are not blobs.
    files: DiskBlobs,
    verified: Arc<VerifiedCopies>,
}

impl S3Blobs {
    /// Connects to the bucket and tries whether it can be used.
    pub(crate) async fn open(config: S3Config, clock: Arc<dyn Clock>) -> Result<Self> {
        let files = DiskBlobs::open(config.cache.clone(), Arc::clone(&clock)).await?;
        let bucket = Arc::new(Bucket::open(&config, clock).await?);
        let verified = Arc::new(VerifiedCopies::new(files.clone(), config.cache_bytes));
        Ok(Self { bucket, files, verified })
    }

    async fn remove(&self, digest: Digest) -> Result<()> {
        self.verified.forget(digest);
        match self.bucket.client.delete(&self.bucket.key(digest)).await {
            Ok(()) => Ok(()),
            Err(error) if says_absent(&error) => Ok(()),
            Err(error) => Err(self.bucket.explain(&error)),
        }
    }
}

#[async_trait]
impl BlobStore for S3Blobs {
    async fn put_bytes(&self, bytes: Bytes) -> Result<Digest> {
        let digest = sha256(&bytes);
        upload_detached(&self.bucket, digest, Source::Memory(bytes), ()).await?;
        Ok(digest)
    }

    async fn writer(&self) -> Result<Box<dyn BlobWriter>> {
        Ok(Box::new(S3Writer { file: self.files.spool().await?, bucket: Arc::clone(&self.bucket) }))
    }

    async fn open(&self, digest: Digest) -> Result<Box<dyn BlobRead>> {
        let (first, object) = self.bucket.first(digest, FIRST).await?;
        Ok(Box::new(S3Read::new(Arc::clone(&self.bucket), digest, first, object.size)))
    }

    async fn open_verified(&self, digest: Digest) -> Result<Box<dyn BlobRead>> {
        self.verified.open(&self.bucket, digest).await
    }

    async fn get(&self, digest: Digest) -> Result<Bytes> {
        let (first, object) = self.bucket.first(digest, PIECE).await?;
        let whole = if first.len() as u64 == object.size {
            first
        } else {
            let mut whole = Vec::with_capacity(usize::try_from(object.size).map_err(StoreError::fault)?);
            whole.extend_from_slice(&first);
            let mut rest = std::pin::pin!(self.bucket.rest(digest, first.len() as u64, object.size));
            while let Some(piece) = rest.try_next().await? {
                whole.extend_from_slice(&piece);
            }
            whole.into()
        };
        if sha256(&whole) == digest { Ok(whole) } else { Err(other_bytes(digest)) }
    }

    async fn look(&self, digest: Digest, bytes: u64) -> Result<()> {
        match self.bucket.head(digest).await? {
            Some(object) if object.size == bytes => Ok(()),
            Some(_) => Err(other_bytes(digest)),
            None => Err(StoreError::MissingBlob(digest)),
        }
    }

    async fn len(&self, digest: Digest) -> Result<Option<u64>> {
        Ok(self.bucket.head(digest).await?.map(|object| object.size))
    }

    async fn delete(&self, digest: Digest) -> Result<bool> {
        let is_there = self.bucket.head(digest).await?.is_some();
        if is_there {
            self.remove(digest).await?;
        }
        Ok(is_there)
    }

    async fn collect(&self, digest: Digest, age: Duration) -> Result<bool> {
        match self.bucket.head(digest).await? {
            Some(object) if self.bucket.age(&object) >= age => {
                self.remove(digest).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn list(&self, age: Duration) -> Result<Vec<Digest>> {
        let found = self.bucket.list().await?;
        Ok(found.into_iter().filter(|(_, found)| *found >= age).map(|(digest, _)| digest).collect())
    }
}

/// A blob that arrives piece by piece, in a local file until its digest is known.
struct S3Writer {
    file: Spool,
    bucket: Arc<Bucket>,
}

#[async_trait]
impl BlobWriter for S3Writer {
    async fn write(&mut self, chunk: Bytes) -> Result<()> {
        self.file.append(chunk).await
    }

    async fn finish(self: Box<Self>, expected: Option<Digest>) -> Result<(Digest, u64)> {
        let (digest, spooled) = self.file.finish(|digest, spooled| Ok((digest, spooled))).await?;
        check_expected(digest, expected)?;
        let bytes = spooled.bytes;
        let source = Source::File { path: spooled.path().to_owned(), bytes };
        upload_detached(&self.bucket, digest, source, spooled).await?;
        Ok((digest, bytes))
    }
}
