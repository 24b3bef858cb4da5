//! Blobs: immutable bytes, addressed by their SHA-256. The store does not interpret them.
//!
//! A blob is durable once [`BlobStore::put_bytes`] or [`BlobWriter::finish`] returns; the row that refers to it is
//! written afterwards. A blob without a row is garbage, to be collected later: [`BlobStore::list`] filters by age, so
//! that a blob whose row is about to be written is spared. Storing a blob again resets its age, which each store computes from
//! the clock that dates its blobs.

mod copies;
mod disk;
mod files;
mod memory;
mod parts;
mod s3;
mod spool;
mod transfer;
mod trusted;
mod verified;

use std::collections::HashSet;
use std::io::{Read, Seek};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::Digest;
use ring::digest::{Context, SHA256};

pub(crate) use self::copies::{Place, ReplicatedBlobs};
pub(crate) use self::disk::DiskBlobs;
pub use self::disk::place_of;
pub use self::files::with_files;
pub(crate) use self::memory::MemoryBlobs;
pub use self::parts::PartsRead;
pub(crate) use self::s3::S3Blobs;
pub use self::s3::{KeepsVersions, S3Config, S3Credentials, Seen, SmallObjects};
pub use self::transfer::transfer;
pub use self::verified::VerifiedRead;
use crate::error::{Result, StoreError};

/// A store of blobs.
#[async_trait]
pub trait BlobStore: Send + Sync {
    /// Stores bytes.
    ///
    /// # Errors
    /// `Full` if the disk is full.
    async fn put_bytes(&self, bytes: Bytes) -> Result<Digest>;

    /// Stores bytes that arrive piece by piece.
    ///
    /// # Errors
    /// `Full` if the disk is full.
    async fn writer(&self) -> Result<Box<dyn BlobWriter>>;

    /// Opens a blob for reading piece by piece. The digest is not verified: to verify it, read it completely through a
    /// [`VerifiedRead`], or call [`BlobStore::get`].
    ///
    /// # Errors
    /// `MissingBlob`.
    async fn open(&self, digest: Digest) -> Result<Box<dyn BlobRead>>;

    /// As [`Self::open`], for a blob whose digest was verified since its file was last touched, as far as this process
    /// can tell: the first time, and after any change to the file, the whole blob is read.
    ///
    /// # Errors
    /// `MissingBlob`; `Corrupt` if the bytes do not have the digest.
    async fn open_verified(&self, digest: Digest) -> Result<Box<dyn BlobRead>>;

    /// As [`Self::open`], without reading any of it. The bytes are known ([`BlobRead::cannot_have_changed`]) if this
    /// process stored or verified the blob, and its file is unchanged since.
    ///
    /// # Errors
    /// `MissingBlob`.
    async fn open_known(&self, digest: Digest) -> Result<Box<dyn BlobRead>> {
        self.open(digest).await
    }

    /// Reads the whole blob and verifies its digest.
    ///
    /// # Errors
    /// `MissingBlob`; `Corrupt` if the bytes do not have the digest.
    async fn get(&self, digest: Digest) -> Result<Bytes>;

    /// Whether a blob of `bytes` bytes is intact, without transferring it: a disk is read the first time, and after any
    /// change of the file; a remote store returns the object's size.
    ///
    /// # Errors
    /// `MissingBlob`; `Corrupt` if it is another one.
    async fn look(&self, digest: Digest, _bytes: u64) -> Result<()> {
        self.open_verified(digest).await.map(drop)
    }

    /// Size in bytes; `None` if the blob is not stored.
    async fn len(&self, digest: Digest) -> Result<Option<u64>>;

    /// Removes a blob, whatever refers to it: equal bytes are one blob. Returns false if it was not stored. Open
    /// readers may continue. To remove garbage, use [`BlobStore::collect`].
    async fn delete(&self, digest: Digest) -> Result<bool>;

    /// Removes a blob that was last stored `age` ago or earlier. Returns false if it was stored since, or is missing.
    /// So garbage that is stored again during collection is spared.
    async fn collect(&self, digest: Digest, age: Duration) -> Result<bool>;

    /// All blobs last stored `age` ago or earlier, in any order. An age of zero lists all blobs.
    async fn list(&self, age: Duration) -> Result<Vec<Digest>>;

    /// Stores the blobs of `needed` again wherever a copy lacks them; returns how many. Acts only if there are several
    /// copies and it is time to compare them.
    async fn even_out(&self, _needed: &HashSet<Digest>) -> Result<usize> {
        Ok(0)
    }

    /// Problems of unreachable copies that an operator should know, one line each.
    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Writes a blob piece by piece. Dropping it before the end discards the bytes.
#[async_trait]
pub trait BlobWriter: Send {
    /// Appends bytes.
    ///
    /// # Errors
    /// `Full` if the disk is full. After any error the writer must be dropped.
    async fn write(&mut self, chunk: Bytes) -> Result<()>;

    /// Makes the blob durable and returns its digest and size. If `expected` is given and differs, the bytes are
    /// discarded.
    ///
    /// # Errors
    /// `Full` if the disk is full; `Conflict` if the digest is not the expected one.
    async fn finish(self: Box<Self>, expected: Option<Digest>) -> Result<(Digest, u64)>;
}

/// A blob open for synchronous reading: use it within `spawn_blocking`.
pub trait BlobRead: Read + Seek + Send + std::fmt::Debug {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Whether the bytes that are read from start to end have the blob's digest, so that verification is unnecessary: true in memory, of a
    /// reader that verifies them itself, and of a file that was opened as known; else false on a disk.
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
