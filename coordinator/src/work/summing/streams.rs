//! Blobs produced piece by piece by a separate thread, in bounded memory.
//!
//! The thread writes, and the step stores. A blob is committed only when the step confirms it: if the thread finds its input damaged at the
//! end, the written data is dropped.

use std::io::{self, Cursor, ErrorKind, Write};
use std::sync::Arc;

use bytes::Bytes;
use federation::id::Digest;
use futures_util::future::try_join_all;
use recipe::server::ReadSeek;
use store::{BlobStore, BlobWriter, StoreError};
use tokio::sync::mpsc;

use super::sums::{Slices, blocking};
use crate::work::StepError;

/// Bytes per transfer of a blob not entirely in memory.
const PIECE: usize = 1 << 20;
/// Maximum number of pieces waiting for storage.
const WAITING: usize = 2;

/// How much of a blob is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::work) enum Buffering {
    /// All of it, about this many bytes: the result of one slice is small, and stored by one request.
    Whole(usize),
    /// A few pieces.
    Pieces,
}

impl Buffering {
    /// For a blob of about this many bytes, produced in these slices.
    pub(in crate::work) fn of(slices: Slices, bytes: usize) -> Self {
        if slices.is_one() { Self::Whole(bytes) } else { Self::Pieces }
    }
}

/// The thread's end.
pub(in crate::work) struct Outgoing {
    to: mpsc::Sender<Bytes>,
    piece: usize,
    held: Vec<u8>,
}

impl Outgoing {
    fn hand_over(&mut self) -> io::Result<()> {
        let piece = std::mem::take(&mut self.held);
        self.to.blocking_send(piece.into()).map_err(|_| io::Error::from(ErrorKind::BrokenPipe))
    }

    fn finish(mut self) -> io::Result<()> {
        if self.held.is_empty() { Ok(()) } else { self.hand_over() }
    }
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.held.capacity() == 0 {
            self.held.reserve_exact(self.piece.min(PIECE));
        }
        let taken = bytes.len().min(self.piece - self.held.len());
        self.held.extend_from_slice(&bytes[..taken]);
        if self.held.len() == self.piece {
            self.hand_over()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A complete but unstored blob.
pub(in crate::work) enum NewBlob {
    Whole(Bytes),
    Written(Box<dyn BlobWriter>),
}

impl NewBlob {
    /// Stores it durably; returns its digest and size.
    pub(in crate::work) async fn store(self, blobs: &Arc<dyn BlobStore>) -> Result<(Digest, u64), StoreError> {
        match self {
            Self::Whole(bytes) => {
                let size = bytes.len() as u64;
                Ok((blobs.put_bytes(bytes).await?, size))
            }
            Self::Written(writer) => writer.finish(None).await,
        }
    }
}

/// A channel for a blob: the thread writes to the first end, and the step reads from the second.
pub(in crate::work) fn pieces(held: Buffering) -> (Outgoing, Incoming) {
    let (to, from) = mpsc::channel(WAITING);
    let (piece, held) = match held {
        Buffering::Whole(about) => (usize::MAX, Vec::with_capacity(about)),
        Buffering::Pieces => (PIECE, Vec::new()),
    };
    (Outgoing { to, piece, held }, Incoming(from))
}

/// The step's end.
pub(in crate::work) struct Incoming(mpsc::Receiver<Bytes>);

impl Incoming {
    /// Receives data until the thread drops its end; that alone does not mean it is complete.
    async fn take(mut self, blobs: &Arc<dyn BlobStore>) -> Result<NewBlob, StoreError> {
        let first = self.0.recv().await.unwrap_or_default();
        let Some(second) = self.0.recv().await else { return Ok(NewBlob::Whole(first)) };
        let mut writer = blobs.writer().await?;
        writer.write(first).await?;
        writer.write(second).await?;
        while let Some(piece) = self.0.recv().await {
            writer.write(piece).await?;
        }
        Ok(NewBlob::Written(writer))
    }
}

/// Runs `work` on a separate thread, which writes as many blobs as there are in `held`.
///
/// # Errors
/// Errors of the blob store; otherwise those of `work`.
pub(in crate::work) async fn making<T, E, const N: usize>(
    blobs: &Arc<dyn BlobStore>,
    held: [Buffering; N],
    work: impl FnOnce([&mut Outgoing; N]) -> Result<T, E> + Send + 'static,
) -> Result<(T, [NewBlob; N]), E>
where
    T: Send + 'static,
    E: From<StepError> + Send + 'static,
{
    let (mut out, mut incoming) = (Vec::with_capacity(N), Vec::with_capacity(N));
    for held in held {
        let (to, from) = pieces(held);
        out.push(to);
        incoming.push(from.take(blobs));
    }
    let out: Result<[Outgoing; N], _> = out.try_into();
    let work = move || -> Result<T, E> {
        let mut out = out.map_err(|_| StepError::unworkable("blobs were lost while they were made"))?;
        let done = work(out.each_mut())?;
        let finished = out.into_iter().try_for_each(Outgoing::finish);
        finished.map_err(|error| StepError::from(StoreError::from(error)))?;
        Ok(done)
    };
    let (done, made) = tokio::join!(blocking(work), try_join_all(incoming));
    // The thread only observes that its receiver is gone.
    let made = made.map_err(StepError::from)?;
    let done = done?;
    let made = made.try_into().map_err(|_| StepError::unworkable("blobs were lost while they were made"))?;
    Ok((done, made))
}

/// Opens a verified blob for reading in slices. A blob of one slice is read at once.
///
/// # Errors
/// `MissingBlob`; `Corrupt` for a wrong digest.
pub(in crate::work) async fn open_verified(
    blobs: &Arc<dyn BlobStore>,
    digest: Digest,
    slices: Slices,
) -> Result<Box<dyn ReadSeek + Send>, StoreError> {
    if slices.is_one() {
        return Ok(Box::new(Cursor::new(blobs.get(digest).await?)));
    }
    Ok(Box::new(blobs.open_verified(digest).await?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use federation::time::{MockClock, Timestamp};
    use store::{Blobs, Database, Store, StoreConfig};

    use super::*;

    #[tokio::test]
    async fn pieces_become_one_blob_or_none_if_the_thread_fails() {
        let clock = Arc::new(MockClock::new(Timestamp(1)));
        let (database, blobs) = (Database::SqliteMemory, Blobs::Memory);
        let store = Store::open(StoreConfig { database, blobs, connections: 1, clock }).await.unwrap();
        let blobs = store.blobs();
        let bytes: Vec<u8> = (0..=255).cycle().take(5 * PIECE + 7).collect();
        let write = |out: &mut Outgoing, bytes: &[u8]| -> Result<(), StepError> {
            bytes
                .chunks(100_003)
                .try_for_each(|chunk| out.write_all(chunk))
                .map_err(|error| StoreError::from(error).into())
        };
        for held in [Buffering::Whole(10), Buffering::Pieces] {
            let copy = bytes.clone();
            let made = making(blobs, [held, Buffering::Pieces], move |[first, second]| {
                write(first, &copy)?;
                write(second, &copy[..3])?;
                Ok::<_, StepError>(copy.len())
            });
            let (length, [first, second]) = made.await.unwrap();
            assert_eq!((length, matches!(first, NewBlob::Written(_))), (bytes.len(), held == Buffering::Pieces));
            let (digest, size) = first.store(blobs).await.unwrap();
            assert!(size == bytes.len() as u64 && blobs.get(digest).await.unwrap() == bytes);
            let (digest, size) = second.store(blobs).await.unwrap();
            assert!(size == 3 && blobs.get(digest).await.unwrap() == bytes[..3]);
        }
        let before = blobs.list(Duration::ZERO).await.unwrap().len();
        let failed = making(blobs, [Buffering::Pieces], move |[out]| {
            write(out, &bytes)?;
            Err::<(), _>(StepError::Stopped("here"))
        });
        assert!(matches!(failed.await.err(), Some(StepError::Stopped("here"))));
        assert_eq!((before, blobs.list(Duration::ZERO).await.unwrap().len()), (2, 2));
    }
}
