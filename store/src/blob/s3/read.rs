//! Reading an object piece by piece, from a thread that may wait.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use bytes::Bytes;
use federation::id::Digest;
use tokio::runtime::Handle;

use super::bucket::Bucket;
use crate::blob::BlobRead;
use crate::error::Result;

/// Bytes that are fetched at first, wherever a read begins: many readers want only these.
pub(super) const FIRST: u64 = 64 << 10;
/// Factor by which pieces grow while they are read in order.
const GROWTH: u64 = 8;
/// Largest piece; two are in memory at once.
const LARGEST: u64 = 4 << 20;

/// A blob open for reading. The next piece is fetched while this one is read in order.
pub(super) struct S3Read {
    bucket: Arc<Bucket>,
    digest: Digest,
    runtime: Handle,
    size: u64,
    /// Where the next read begins.
    at: u64,
    held: Bytes,
    /// Where `held` begins.
    held_at: u64,
    window: u64,
    coming: Option<Coming>,
}

/// A piece on its way.
struct Coming {
    range: Range<u64>,
    arrives: Receiver<Result<Bytes>>,
}

impl std::fmt::Debug for S3Read {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "blob {} at byte {} of {}", self.digest, self.at, self.size)
    }
}

impl S3Read {
    /// A reader of which the `first` bytes are here. Call this within a runtime.
    pub(super) fn new(bucket: Arc<Bucket>, digest: Digest, first: Bytes, size: u64) -> Self {
        let runtime = Handle::current();
        Self { bucket, digest, runtime, size, at: 0, held: first, held_at: 0, window: FIRST, coming: None }
    }

    fn held_end(&self) -> u64 {
        self.held_at + self.held.len() as u64
    }

    fn fetch(&self, range: Range<u64>) -> Coming {
        let (tell, arrives) = sync_channel(1);
        let (bucket, digest, wanted) = (Arc::clone(&self.bucket), self.digest, range.clone());
        self.runtime.spawn(async move {
            // The reader may have moved to another position.
            let _ = tell.send(bucket.range(digest, wanted).await);
        });
        Coming { range, arrives }
    }

    /// Makes `held` the piece at `at`, which lies within the blob.
    fn turn_to(&mut self) -> io::Result<()> {
        let in_order = self.at == self.held_end();
        self.window = if in_order { (self.window * GROWTH).min(LARGEST) } else { FIRST };
        let coming = match self.coming.take() {
            Some(coming) if coming.range.start == self.at => coming,
            _ => self.fetch(self.at..self.size.min(self.at + self.window)),
        };
        let arrived =
            coming.arrives.recv().map_err(|_| io::Error::other("the runtime that fetches blobs has ended"))?;
        self.held = arrived.map_err(io::Error::other)?;
        self.held_at = self.at;
        if self.held.len() as u64 != coming.range.end - coming.range.start {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "an object became shorter while it was read"));
        }
        let next = self.held_end();
        if in_order && next < self.size {
            let window = (self.window * GROWTH).min(LARGEST);
            self.coming = Some(self.fetch(next..self.size.min(next + window)));
        }
        Ok(())
    }
}

impl Read for S3Read {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || self.at >= self.size {
            return Ok(0);
        }
        if !(self.held_at..self.held_end()).contains(&self.at) {
            self.turn_to()?;
        }
        let from = usize::try_from(self.at - self.held_at).map_err(io::Error::other)?;
        let rest = &self.held[from..];
        let got = rest.len().min(buffer.len());
        buffer[..got].copy_from_slice(&rest[..got]);
        self.at += got as u64;
        Ok(got)
    }
}

impl Seek for S3Read {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(offset) => self.size.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
        };
        self.at = to.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

impl BlobRead for S3Read {
    fn size(&self) -> u64 {
        self.size
    }
}
