//! Blobs in memory, for tests and simulations.

use std::collections::HashMap;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::Digest;
use federation::time::{Clock, Timestamp};

use super::{BlobRead, BlobStore, BlobWriter, check_expected, sha256};
use crate::error::{Result, StoreError};

/// Blobs in memory. Clones share them.
#[derive(Clone)]
pub(crate) struct MemoryBlobs {
    blobs: Arc<Mutex<HashMap<Digest, (Bytes, Timestamp)>>>,
    clock: Arc<dyn Clock>,
}

impl MemoryBlobs {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { blobs: Arc::default(), clock }
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<Digest, (Bytes, Timestamp)>) -> T) -> T {
        // `act` cannot leave the map inconsistent, so poisoning is ignored.
        act(&mut self.blobs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn find(&self, digest: Digest) -> Result<Bytes> {
        self.with(|blobs| blobs.get(&digest).map(|(bytes, _)| bytes.clone())).ok_or(StoreError::MissingBlob(digest))
    }

    /// Stores bytes under their digest, which the caller has computed.
    fn put(&self, digest: Digest, bytes: Bytes) {
        let now = self.clock.now();
        self.with(|blobs| blobs.insert(digest, (bytes, now)));
    }
}

#[async_trait]
impl BlobStore for MemoryBlobs {
    async fn put_bytes(&self, bytes: Bytes) -> Result<Digest> {
        let digest = sha256(&bytes);
        self.put(digest, bytes);
        Ok(digest)
    }

    async fn writer(&self) -> Result<Box<dyn BlobWriter>> {
        Ok(Box::new(MemoryWriter { blobs: self.clone(), chunks: Vec::new() }))
    }

    async fn open(&self, digest: Digest) -> Result<Box<dyn BlobRead>> {
        Ok(Box::new(MemoryRead(Cursor::new(self.find(digest)?))))
    }

    async fn open_verified(&self, digest: Digest) -> Result<Box<dyn BlobRead>> {
        self.open(digest).await
    }

    async fn get(&self, digest: Digest) -> Result<Bytes> {
        self.find(digest)
    }

    async fn len(&self, digest: Digest) -> Result<Option<u64>> {
        Ok(self.with(|blobs| blobs.get(&digest).map(|(bytes, _)| bytes.len() as u64)))
    }

    async fn delete(&self, digest: Digest) -> Result<bool> {
        Ok(self.with(|blobs| blobs.remove(&digest).is_some()))
    }

    async fn collect(&self, digest: Digest, age: Duration) -> Result<bool> {
        let now = self.clock.now();
        Ok(self.with(|blobs| match blobs.get(&digest) {
            Some((_, at)) if now.since(*at) >= age => blobs.remove(&digest).is_some(),
            _ => false,
        }))
    }

    async fn list(&self, age: Duration) -> Result<Vec<Digest>> {
        let now = self.clock.now();
        let is_old = |at: Timestamp| now.since(at) >= age;
        Ok(self.with(|blobs| blobs.iter().filter(|(_, (_, at))| is_old(*at)).map(|(digest, _)| *digest).collect()))
    }
}

struct MemoryWriter {
    blobs: MemoryBlobs,
    chunks: Vec<Bytes>,
}

#[async_trait]
impl BlobWriter for MemoryWriter {
    async fn write(&mut self, chunk: Bytes) -> Result<()> {
        self.chunks.push(chunk);
        Ok(())
    }

    async fn finish(mut self: Box<Self>, expected: Option<Digest>) -> Result<(Digest, u64)> {
        // A single chunk is stored as it is.
        let bytes = match self.chunks.pop() {
            Some(whole) if self.chunks.is_empty() => whole,
            last => {
                self.chunks.extend(last);
                self.chunks.concat().into()
            }
        };
        let digest = sha256(&bytes);
        check_expected(digest, expected)?;
        let size = bytes.len() as u64;
        self.blobs.put(digest, bytes);
        Ok((digest, size))
    }
}

#[derive(Debug)]
struct MemoryRead(Cursor<Bytes>);

impl Read for MemoryRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Seek for MemoryRead {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

impl BlobRead for MemoryRead {
    fn size(&self) -> u64 {
        self.0.get_ref().len() as u64
    }

    fn cannot_have_changed(&self) -> bool {
        true
    }
}
