//! Blobs: immutable bytes, addressed by their SHA-256. The store does not know what they mean.
//!
//! A blob is durable once [`BlobStore::put_bytes`] or [`BlobWriter::finish`] returns; the row that refers to it comes
//! after. A blob without a row is garbage, which somebody collects later: [`BlobStore::list`] tells its age, so that a
//! blob whose row is about to be written is spared. Storing a blob that exists already makes it young again.

mod disk;
mod files;
mod memory;
mod trusted;
mod verified;

use std::io::{Read, Seek};

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::Digest;
use federation::time::Timestamp;
use ring::digest::{Context, SHA256};

pub(crate) use self::disk::DiskBlobs;
pub use self::files::with_files;
pub(crate) use self::memory::MemoryBlobs;
pub use self::verified::VerifiedRead;
use crate::error::{Result, StoreError};

/// A place for blobs.
#[async_trait]
pub trait BlobStore: Send + Sync {
    /// Stores bytes.
    ///
    /// # Errors
    /// `Full` if there is no room.
    async fn put_bytes(&self, bytes: Bytes) -> Result<Digest>;

    /// Stores bytes that arrive piece by piece.
    ///
    /// # Errors
    /// `Full` if there is no room.
    async fn writer(&self) -> Result<Box<dyn BlobWriter>>;

    /// Opens a blob for reading piece by piece. The digest is not verified: who reads the whole and must be sure reads
    /// through a [`VerifiedRead`], or calls [`BlobStore::get`].
    ///
    /// # Errors
    /// `MissingBlob`.
    async fn open(&self, digest: Digest) -> Result<Box<dyn BlobRead>>;

    /// The same, for a blob whose digest was verified since its file was last touched, as far as this process can tell: the
    /// first time, and whenever the file was touched, the whole is read.
    ///
    /// # Errors
    /// `MissingBlob`; `Corrupt` if the bytes do not have the digest.
    async fn open_verified(&self, digest: Digest) -> Result<Box<dyn BlobRead>>;

    /// Reads the whole blob and verifies its digest.
    ///
    /// # Errors
    /// `MissingBlob`; `Corrupt` if the bytes do not have the digest.
    async fn get(&self, digest: Digest) -> Result<Bytes>;

    /// Size in bytes; none if there is no such blob.
    async fn len(&self, digest: Digest) -> Result<Option<u64>>;

    /// Removes a blob, whoever else refers to it: equal bytes are one blob. False if there was none. Readers that have it
    /// open may go on. To remove garbage, use [`BlobStore::collect`].
    async fn delete(&self, digest: Digest) -> Result<bool>;

    /// Removes a blob unless it was stored since `older_than`. False if it was, or if there is none. So garbage whose bytes
    /// come again while it is being collected is spared.
    async fn collect(&self, digest: Digest, older_than: Timestamp) -> Result<bool>;

    /// Every blob that was last stored before `older_than`, in no particular order.
    async fn list(&self, older_than: Timestamp) -> Result<Vec<Digest>>;
}

/// Takes a blob piece by piece. Dropped before it is finished, it leaves nothing.
#[async_trait]
pub trait BlobWriter: Send {
    /// Appends.
    ///
    /// # Errors
    /// `Full` if there is no room. After any error the writer must be dropped.
    async fn write(&mut self, chunk: Bytes) -> Result<()>;

    /// Makes the blob durable; returns its digest and size. If `expected` is given and differs, nothing is kept.
    ///
    /// # Errors
    /// `Full` if there is no room; `Conflict` if the digest is not the expected one.
    async fn finish(self: Box<Self>, expected: Option<Digest>) -> Result<(Digest, u64)>;
}

/// A blob that is open for reading, synchronously: use it within `spawn_blocking`.
pub trait BlobRead: Read + Seek + Send + std::fmt::Debug {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Whether these are certainly the bytes whose digest was computed when they were stored: those of a process's own
    /// memory are, those of a disk are not.
    fn cannot_have_changed(&self) -> bool {
        false
    }
}

fn sha256(bytes: &[u8]) -> Digest {
    let mut context = Context::new(&SHA256);
    context.update(bytes);
    finish_digest(context)
}

fn finish_digest(context: Context) -> Digest {
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    Digest(digest)
}

fn check_expected(actual: Digest, expected: Option<Digest>) -> Result<()> {
    match expected {
        Some(expected) if expected != actual => Err(StoreError::Conflict(format!(
            "the bytes have SHA-256 {actual}, not the expected {expected}: they were changed or cut off on the way"
        ))),
        _ => Ok(()),
    }
}
