//! Blobs with injected faults.

use std::collections::HashSet;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::Digest;
use store::{BlobRead, BlobStore, BlobWriter, Result as StoreResult, StoreError};

/// The fault of a blob store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Every call fails.
    Away,
    /// Storing fails for lack of space.
    Full,
    /// Storing takes this long.
    Slow(Duration),
}

/// Blobs that fail on demand.
pub(crate) struct FaultyBlobs {
    inner: Arc<dyn BlobStore>,
    fault: Mutex<Fault>,
    damaged: Mutex<HashSet<Digest>>,
    failures: AtomicUsize,
    /// Calls that returned a blob as a whole.
    held: AtomicUsize,
}

impl FaultyBlobs {
    pub(crate) fn over(inner: Arc<dyn BlobStore>) -> Self {
        Self {
            inner,
            fault: Mutex::new(Fault::None),
            damaged: Mutex::default(),
            failures: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
        }
    }

    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    /// Makes this blob return other bytes.
    pub(crate) fn damage(&self, digest: Digest) {
        self.damaged.lock().unwrap().insert(digest);
    }

    /// Repairs a damaged blob.
    pub(crate) fn mend(&self, digest: Digest) {
        self.damaged.lock().unwrap().remove(&digest);
    }

    /// Number of failed calls.
    pub(crate) fn failures(&self) -> usize {
        self.failures.load(Ordering::SeqCst)
    }

    /// Number of blobs read as a whole.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    pub(crate) async fn all(&self) -> HashSet<Digest> {
        self.inner.list(Duration::ZERO).await.unwrap().into_iter().collect()
    }

    fn check(&self, writes: bool) -> StoreResult<()> {
        let error = match *self.fault.lock().unwrap() {
            Fault::Away => StoreError::fault("the blob store is away"),
            Fault::Full if writes => StoreError::Full,
            Fault::None | Fault::Full | Fault::Slow(_) => return Ok(()),
        };
        self.failures.fetch_add(1, Ordering::SeqCst);
        Err(error)
    }
}

/// Other bytes of the same length.
#[derive(Debug)]
struct Damaged(Box<dyn BlobRead>);

impl Read for Damaged {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.0.read(buffer)?;
        buffer[..got].iter_mut().for_each(|byte| *byte ^= 1);
        Ok(got)
    }
}

impl Seek for Damaged {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

impl BlobRead for Damaged {
    fn size(&self) -> u64 {
        self.0.size()
    }
}

#[async_trait]
impl BlobStore for FaultyBlobs {
    async fn put_bytes(&self, bytes: Bytes) -> StoreResult<Digest> {
        self.check(true)?;
        let fault = *self.fault.lock().unwrap();
        if let Fault::Slow(time) = fault {
            tokio::time::sleep(time).await;
        }
        self.inner.put_bytes(bytes).await
    }

    async fn writer(&self) -> StoreResult<Box<dyn BlobWriter>> {
        self.check(true)?;
        self.inner.writer().await
    }

    async fn open(&self, digest: Digest) -> StoreResult<Box<dyn BlobRead>> {
        self.check(false)?;
        let blob = self.inner.open(digest).await?;
        let damaged = self.damaged.lock().unwrap().contains(&digest);
        Ok(if damaged { Box::new(Damaged(blob)) } else { blob })
    }

    async fn open_verified(&self, digest: Digest) -> StoreResult<Box<dyn BlobRead>> {
        self.check(false)?;
        if self.damaged.lock().unwrap().contains(&digest) {
            return Err(StoreError::corrupt(format!("blob {digest}")));
        }
        self.inner.open_verified(digest).await
    }

    async fn get(&self, digest: Digest) -> StoreResult<Bytes> {
        self.check(false)?;
        if self.damaged.lock().unwrap().contains(&digest) {
            return Err(StoreError::corrupt(format!("blob {digest}")));
        }
        self.held.fetch_add(1, Ordering::SeqCst);
        self.inner.get(digest).await
    }

    async fn len(&self, digest: Digest) -> StoreResult<Option<u64>> {
        self.check(false)?;
        self.inner.len(digest).await
    }

    async fn delete(&self, digest: Digest) -> StoreResult<bool> {
        self.check(false)?;
        self.inner.delete(digest).await
    }

    async fn collect(&self, digest: Digest, age: Duration) -> StoreResult<bool> {
        self.check(false)?;
        self.inner.collect(digest, age).await
    }

    async fn list(&self, age: Duration) -> StoreResult<Vec<Digest>> {
        self.check(false)?;
        self.inner.list(age).await
    }
}
