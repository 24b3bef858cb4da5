//! A disk of blobs that several coordinators share: it may damage blobs, and reports every change.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::Digest;
use federation::time::{Clock, Timestamp};
use store::{BlobRead, BlobStore, BlobWriter, Interruption as _, Result, StoreError, WriteFate};

use super::process::Process;

/// Content of the disk.
#[derive(Default)]
pub(super) struct Disk {
    blobs: Mutex<BTreeMap<Digest, Blob>>,
    /// How often blobs were removed or changed.
    losses: AtomicU64,
}

struct Blob {
    bytes: Bytes,
    at: Timestamp,
    is_damaged: bool,
    /// The process that wrote it and did not flush it.
    unflushed: Option<usize>,
}

impl Disk {
    fn blobs(&self) -> MutexGuard<'_, BTreeMap<Digest, Blob>> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often blobs were removed or changed.
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }

    fn loses(&self) {
        self.losses.fetch_add(1, Ordering::SeqCst);
    }

    /// Changes a bit of a blob; whether there is one.
    pub(super) fn damage(&self, digest: Digest) -> bool {
        let mut blobs = self.blobs();
        let Some(blob) = blobs.get_mut(&digest) else { return false };
        self.loses();
        let mut bytes = blob.bytes.to_vec();
        // Of the first coordinate, by an amount that honest updates have.
        if let Some(byte) = bytes.get_mut(2) {
            *byte ^= 1;
        }
        (blob.bytes, blob.is_damaged) = (bytes.into(), true);
        true
    }

    /// Every blob, and whether the disk damaged it.
    pub(super) fn all(&self) -> BTreeMap<Digest, bool> {
        self.blobs().iter().map(|(digest, blob)| (*digest, blob.is_damaged)).collect()
    }

    pub(super) fn damaged(&self) -> BTreeSet<Digest> {
        self.all().into_iter().filter_map(|(digest, damaged)| damaged.then_some(digest)).collect()
    }

    pub(super) fn bytes(&self, digest: Digest) -> Option<Bytes> {
        self.blobs().get(&digest).map(|blob| blob.bytes.clone())
    }

    /// The machine of this process lost its power: unflushed data are gone.
    pub(super) fn power_cut(&self, process: usize) {
        self.loses();
        self.blobs().retain(|_, blob| blob.unflushed != Some(process));
    }
}

/// The disk as one process uses it.
pub(super) struct DiskView {
    pub(super) disk: Arc<Disk>,
    pub(super) process: Arc<Process>,
    /// The clock that dates blobs.
    pub(super) clock: Arc<dyn Clock>,
    /// Set by a process that forgets to flush: its number.
    pub(super) forgets_to_flush: Option<usize>,
    /// Whether it claims that its blobs cannot have changed.
    pub(super) trusts_itself: bool,
}

impl DiskView {
    fn clone_view(&self) -> Self {
        let Self { disk, process, clock, forgets_to_flush, trusts_itself } = self;
        Self {
            disk: Arc::clone(disk),
            process: Arc::clone(process),
            clock: Arc::clone(clock),
            forgets_to_flush: *forgets_to_flush,
            trusts_itself: *trusts_itself,
        }
    }

    async fn put(&self, bytes: Bytes, digest: Digest) -> Result<()> {
        self.process.may_go_on(true).await;
        let fate = self.process.commits();
        match fate {
            WriteFate::Done | WriteFate::FailsAfter | WriteFate::StopsAfter => {
                let blob = Blob { bytes, at: self.clock.now(), is_damaged: false, unflushed: self.forgets_to_flush };
                self.disk.blobs().insert(digest, blob);
            }
            // The bytes that it wrote so far are still unnamed.
            WriteFate::Fails | WriteFate::StopsBefore => {}
        }
        match fate {
            WriteFate::Done => Ok(()),
            WriteFate::Fails | WriteFate::FailsAfter => Err(StoreError::fault("the disk failed")),
            WriteFate::StopsBefore | WriteFate::StopsAfter => pending().await,
        }
    }

    fn reader(&self, bytes: Bytes) -> DiskRead {
        DiskRead { bytes: Cursor::new(bytes), is_trusted: self.trusts_itself }
    }

    fn find(&self, digest: Digest) -> Result<Bytes> {
        self.disk.bytes(digest).ok_or(StoreError::MissingBlob(digest))
    }
}

#[async_trait]
impl BlobStore for DiskView {
    async fn put_bytes(&self, bytes: Bytes) -> Result<Digest> {
        let digest = sha256(&bytes);
        self.put(bytes, digest).await?;
        Ok(digest)
    }

    async fn writer(&self) -> Result<Box<dyn BlobWriter>> {
        Ok(Box::new(DiskWriter { view: self.clone_view(), bytes: Vec::new() }))
    }

    async fn open(&self, digest: Digest) -> Result<Box<dyn BlobRead>> {
        Ok(Box::new(self.reader(self.find(digest)?)))
    }

    async fn open_verified(&self, digest: Digest) -> Result<Box<dyn BlobRead>> {
        Ok(Box::new(self.reader(self.get(digest).await?)))
    }

    async fn get(&self, digest: Digest) -> Result<Bytes> {
        let bytes = self.find(digest)?;
        if sha256(&bytes) == digest { Ok(bytes) } else { Err(StoreError::corrupt(format!("blob {digest}"))) }
    }

    async fn len(&self, digest: Digest) -> Result<Option<u64>> {
        Ok(self.disk.bytes(digest).map(|bytes| bytes.len() as u64))
    }

    async fn delete(&self, digest: Digest) -> Result<bool> {
        self.process.may_go_on(true).await;
        self.disk.loses();
        Ok(self.disk.blobs().remove(&digest).is_some())
    }

    async fn collect(&self, digest: Digest, age: Duration) -> Result<bool> {
        self.process.may_go_on(true).await;
        self.disk.loses();
        let mut blobs = self.disk.blobs();
        let is_old = blobs.get(&digest).is_some_and(|blob| self.clock.now().since(blob.at) >= age);
        Ok(is_old && blobs.remove(&digest).is_some())
    }

    async fn list(&self, age: Duration) -> Result<Vec<Digest>> {
        self.process.may_go_on(false).await;
        let (blobs, now) = (self.disk.blobs(), self.clock.now());
        Ok(blobs.iter().filter(|(_, blob)| now.since(blob.at) >= age).map(|(digest, _)| *digest).collect())
    }
}

struct DiskWriter {
    view: DiskView,
    bytes: Vec<u8>,
}

#[async_trait]
impl BlobWriter for DiskWriter {
    async fn write(&mut self, chunk: Bytes) -> Result<()> {
        self.bytes.extend_from_slice(&chunk);
        Ok(())
    }

    async fn finish(self: Box<Self>, expected: Option<Digest>) -> Result<(Digest, u64)> {
        let Self { view, bytes } = *self;
        let (digest, size) = (sha256(&bytes), bytes.len() as u64);
        if expected.is_some_and(|expected| expected != digest) {
            return Err(StoreError::Conflict(format!(
                "the bytes have SHA-256 {digest}, which is not the expected one"
            )));
        }
        view.put(bytes.into(), digest).await?;
        Ok((digest, size))
    }
}

/// Bytes that may have changed since they were stored.
#[derive(Debug)]
struct DiskRead {
    bytes: Cursor<Bytes>,
    is_trusted: bool,
}

impl Read for DiskRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(buffer)
    }
}

impl Seek for DiskRead {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.bytes.seek(to)
    }
}

impl BlobRead for DiskRead {
    fn size(&self) -> u64 {
        self.bytes.get_ref().len() as u64
    }

    fn cannot_have_changed(&self) -> bool {
        self.is_trusted
    }
}

fn sha256(bytes: &[u8]) -> Digest {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    Digest(digest)
}
