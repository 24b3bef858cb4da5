//! Several blobs, one after another, read as one.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use federation::id::Digest;
use ring::digest::{Context, SHA256};
use tokio::runtime::Handle;

use super::{BlobRead, BlobStore, finish_digest};
use crate::error::StoreError;

/// Blobs read as one, of which one is open at a time. A blob that is read from its start to its end is verified there: the read that
/// finds its end fails with [`io::ErrorKind::InvalidData`], with a [`StoreError::Corrupt`] inside, if it has other bytes. After
/// [`Seek`] into a blob, the rest of that blob is not verified. Synchronous, like [`BlobRead`]; not on a thread of the runtime, which
/// opens the blobs.
pub struct PartsRead {
    blobs: Arc<dyn BlobStore>,
    runtime: Handle,
    /// Whether to skip the verification of blobs that are known to be unchanged.
    trusts_known: bool,
    /// Digest of each blob, and where it ends.
    parts: Vec<(Digest, u64)>,
    /// Where the next read begins.
    at: u64,
    open: Option<Open>,
}

struct Open {
    part: usize,
    /// Where its next read begins, in all blobs.
    at: u64,
    blob: Box<dyn BlobRead>,
    /// Of everything read since its start.
    context: Option<Context>,
}

impl PartsRead {
    /// Reads these blobs, each with its digest and size, in order, and verifies each. Call this within a runtime.
    #[must_use]
    pub fn new(blobs: Arc<dyn BlobStore>, parts: impl IntoIterator<Item = (Digest, u64)>) -> Self {
        let ends = parts.into_iter().scan(0, |end: &mut u64, (digest, bytes)| {
            *end = end.saturating_add(bytes);
            Some((digest, *end))
        });
        Self { blobs, runtime: Handle::current(), trusts_known: false, parts: ends.collect(), at: 0, open: None }
    }

    /// Does not hash those again that this process has just stored, or verified: see [`BlobStore::open_known`].
    #[must_use]
    pub fn trusting_known(self) -> Self {
        Self { trusts_known: true, ..self }
    }

    fn start(&self, part: usize) -> u64 {
        part.checked_sub(1).map_or(0, |before| self.parts[before].1)
    }

    /// The open blob that holds the byte at `at`, which lies within one.
    fn turn_to(&mut self, part: usize) -> io::Result<Open> {
        if let Some(open) = self.open.take()
            && (open.part, open.at) == (part, self.at)
        {
            return Ok(open);
        }
        let (digest, end) = self.parts[part];
        let start = self.start(part);
        let (blobs, trusts_known, (tell, told)) = (Arc::clone(&self.blobs), self.trusts_known, sync_channel(1));
        self.runtime.spawn(async move {
            let opened = if trusts_known { blobs.open_known(digest).await } else { blobs.open(digest).await };
            // The reader may have been dropped.
            let _ = tell.send(opened);
        });
        let opened = told.recv().map_err(|_| io::Error::other("the runtime that opens blobs has ended"))?;
        let mut blob = opened.map_err(io::Error::other)?;
        if blob.size() != end - start {
            let found = blob.size();
            return Err(invalid(format!("blob {digest} has {found} bytes instead of {}", end - start)));
        }
        let context = (self.at == start && !blob.cannot_have_changed()).then(|| Context::new(&SHA256));
        if self.at > start {
            blob.seek(SeekFrom::Start(self.at - start))?;
        }
        Ok(Open { part, at: self.at, blob, context })
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, StoreError::corrupt(what))
}

impl std::fmt::Debug for PartsRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} blobs at byte {} of {}", self.parts.len(), self.at, self.size())
    }
}

impl Read for PartsRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Blobs without bytes are passed over.
        let part = self.parts.partition_point(|(_, end)| *end <= self.at);
        if buffer.is_empty() || part == self.parts.len() {
            return Ok(0);
        }
        let mut open = self.turn_to(part)?;
        let (digest, end) = self.parts[part];
        let most = usize::try_from(end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let got = open.blob.read(&mut buffer[..most])?;
        if got == 0 {
            return Err(invalid(format!("blob {digest} became shorter while it was read")));
        }
        self.at += got as u64;
        open.at = self.at;
        if let Some(context) = &mut open.context {
            context.update(&buffer[..got]);
        }
        if self.at < end {
            self.open = Some(open);
        } else if let Some(context) = open.context
            && finish_digest(context) != digest
        {
            return Err(invalid(format!("what is stored as blob {digest} are other bytes")));
        }
        Ok(got)
    }
}

impl Seek for PartsRead {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(offset) => self.size().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
        };
        self.at = to.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

impl BlobRead for PartsRead {
    fn size(&self) -> u64 {
        self.parts.last().map_or(0, |(_, end)| *end)
    }

    fn cannot_have_changed(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use federation::time::MockClock;

    use super::*;
    use crate::blob::{DiskBlobs, place_of};

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn blobs_are_read_as_one_and_verified_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(MockClock::new(federation::time::Timestamp(1)));
        let blobs: Arc<dyn BlobStore> = Arc::new(DiskBlobs::open(folder.path().to_owned(), clock).await.unwrap());
        let whole: Vec<u8> = (0..=255).cycle().take(150_000).collect();
        let mut parts = Vec::new();
        for part in [&whole[..70_000], &[], &whole[70_000..140_000], &whole[140_000..]] {
            parts.push((blobs.put_bytes(part.to_vec().into()).await.unwrap(), part.len() as u64));
        }
        let reader = || PartsRead::new(Arc::clone(&blobs), parts.clone());
        let read = |mut reader: PartsRead| async move {
            let read = move || {
                let mut bytes = Vec::new();
                reader.read_to_end(&mut bytes).map(|_| bytes)
            };
            tokio::task::spawn_blocking(read).await.unwrap()
        };
        assert_eq!(reader().size(), 150_000);
        assert_eq!(read(reader()).await.unwrap(), whole);
        assert_eq!(read(reader().trusting_known()).await.unwrap(), whole);
        for at in [1_u16, 60_000, 65_000] {
            let mut later = reader();
            later.seek(SeekFrom::Start(u64::from(at) * 2)).unwrap();
            assert_eq!(read(later).await.unwrap(), whole[usize::from(at) * 2..]);
        }
        let path = place_of(folder.path(), parts[2].0);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[60_000] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        for reader in [reader(), reader().trusting_known()] {
            let error = read(reader).await.unwrap_err().downcast::<StoreError>().unwrap();
            assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
        }
        std::fs::write(&path, &bytes[1..]).unwrap();
        let error = read(reader()).await.unwrap_err().downcast::<StoreError>().unwrap();
        assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
        std::fs::remove_file(&path).unwrap();
        let error = read(reader()).await.unwrap_err().downcast::<StoreError>().unwrap();
        assert!(matches!(error, StoreError::MissingBlob(_)), "{error}");
    }
}
