//! Storing a blob whose digest is known: one request, or in parts that become an object together.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use federation::id::Digest;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::multipart::{MultipartStore as _, PartId};
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};
use tokio::sync::Semaphore;

use super::bucket::{Bucket, PIECE, is_unsent};
use crate::error::{Result, StoreError};

/// Parts of one blob that are sent at once.
const PARTS_AT_ONCE: usize = 3;
/// Parts of files in memory, of all uploads of this process.
const PARTS_IN_MEMORY: usize = 8;
/// Most parts that S3 allows.
const PARTS_MAX: u64 = 10_000;

static MEMORY: Semaphore = Semaphore::const_new(PARTS_IN_MEMORY);

/// The bytes of a blob.
#[derive(Clone)]
pub(super) enum Source {
    Memory(Bytes),
    File { path: PathBuf, bytes: u64 },
}

impl Source {
    fn bytes(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { bytes, .. } => *bytes,
        }
    }

    async fn read(&self, from: u64, to: u64) -> Result<Bytes> {
        match self {
            Self::Memory(bytes) => {
                let place = |at: u64| usize::try_from(at).map_err(StoreError::fault);
                Ok(bytes.slice(place(from)?..place(to)?))
            }
            Self::File { path, .. } => {
                let path = path.clone();
                let read = move || {
                    let mut file = File::open(path)?;
                    file.seek(SeekFrom::Start(from))?;
                    let mut piece = Vec::new();
                    file.take(to - from).read_to_end(&mut piece)?;
                    Ok::<_, StoreError>(Bytes::from(piece))
                };
                crate::with_files(read).await?
            }
        }
    }
}

/// Stores a blob under its digest. The key appears once all bytes are there. An existing object is replaced by its
/// equal, which resets its age and repairs it.
pub(super) async fn upload(bucket: &Bucket, digest: Digest, source: &Source) -> Result<()> {
    let (key, bytes) = (bucket.key(digest), source.bytes());
    if bytes <= PIECE {
        let _memory = MEMORY.acquire().await.map_err(StoreError::fault)?;
        let piece = source.read(0, bytes).await?;
        bucket.client.put(&key, piece.into()).await.map_err(|error| bucket.explain(&error))?;
        return Ok(());
    }
    let id = bucket.client.create_multipart(&key).await.map_err(|error| bucket.explain(&error))?;
    let stored = async {
        let parts = send_parts(bucket, &key, &id, source).await?;
        bucket.client.complete_multipart(&key, &id, parts).await.map_err(|error| bucket.explain(&error))
    };
    match stored.await {
        Ok(_) => Ok(()),
        Err(error) => {
            // The server may be away. A rule of the bucket removes the upload then.
            if let Err(left) = bucket.client.abort_multipart(&key, &id).await {
                tracing::debug!(%digest, error = %left, "could not abort an upload");
            }
            Err(error)
        }
    }
}

async fn send_parts(bucket: &Bucket, key: &Path, id: &String, source: &Source) -> Result<Vec<PartId>> {
    let bytes = source.bytes();
    let size = PIECE.max(bytes.div_ceil(PARTS_MAX));
    let starts = (0..bytes).step_by(usize::try_from(size).map_err(StoreError::fault)?).enumerate();
    stream::iter(starts)
        .map(|(index, start)| async move {
            let _memory = MEMORY.acquire().await.map_err(StoreError::fault)?;
            let part = source.read(start, bytes.min(start + size)).await?;
            let part = PutPayload::from(part);
            let put = || bucket.client.put_part(key, id, index, part.clone());
            let stored = match put().await {
                Err(error) if is_unsent(&error) => put().await,
                stored => stored,
            };
            stored.map_err(|error| bucket.explain(&error))
        })
        .buffered(PARTS_AT_ONCE)
        .try_collect()
        .await
}

/// Stores a blob to the end, even if the caller gives up.
pub(super) async fn upload_detached(
    bucket: &Arc<Bucket>,
    digest: Digest,
    source: Source,
    keep: impl Send + 'static,
) -> Result<()> {
    let bucket = Arc::clone(bucket);
    let work = async move {
        let done = upload(&bucket, digest, &source).await;
        drop(keep);
        done
    };
    tokio::spawn(work).await.map_err(StoreError::fault)?
}
