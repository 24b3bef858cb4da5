//! Blobs that a thread of its own makes piece by piece, so that their size does not matter to memory.
//!
//! The thread writes, the step stores. Nothing is a blob before the step says so: the thread may find at the end of what it read
//! that it was damaged, and then what was written is dropped.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use bytes::Bytes;
use federation::id::Digest;
use store::{BlobStore, BlobWriter, StoreError};
use tokio::sync::mpsc;

use super::StepError;
use super::sums::{Slices, blocking};

/// Bytes that are handed over at once, of a blob that is not whole in memory.
const PIECE: usize = 1 << 20;
/// Pieces that may wait to be stored.
const WAITING: usize = 2;

/// How many bytes of a blob are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// All of them, which are about so many: what is made of one slice is small, and stored by one request.
    Whole(usize),
    /// A few pieces.
    Pieces,
}

impl Held {
    /// Of a blob of about so many bytes that is made in these slices.
    pub(super) fn of(slices: Slices, bytes: usize) -> Self {
        if slices.is_one() { Self::Whole(bytes) } else { Self::Pieces }
    }
}

/// The thread's end.
pub(super) struct Outgoing {
    to: mpsc::Sender<Bytes>,
    piece: usize,
    held: Vec<u8>,
}

impl Outgoing {
    fn hand_over(&mut self) -> io::Result<()> {
        let piece = std::mem::take(&mut self.held);
        self.to.blocking_send(piece.into()).map_err(|_| io::Error::from(ErrorKind::BrokenPipe))
    }

    /// Hands over the rest.
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

/// A blob that was made and is not stored.
pub(super) enum NewBlob {
    Whole(Bytes),
    Written(Box<dyn BlobWriter>),
}

impl NewBlob {
    /// Makes it durable; returns its digest and size.
    pub(super) async fn store(self, blobs: &Arc<dyn BlobStore>) -> Result<(Digest, u64), StoreError> {
        match self {
            Self::Whole(bytes) => {
                let size = bytes.len() as u64;
                Ok((blobs.put_bytes(bytes).await?, size))
            }
            Self::Written(writer) => writer.finish(None).await,
        }
    }
}

/// A blob under way: what a thread writes to the first is the second.
pub(super) fn pieces(held: Held) -> (Outgoing, Incoming) {
    let (to, from) = mpsc::channel(WAITING);
    let (piece, held) = match held {
        Held::Whole(about) => (usize::MAX, Vec::with_capacity(about)),
        Held::Pieces => (PIECE, Vec::new()),
    };
    (Outgoing { to, piece, held }, Incoming(from))
}

/// The step's end.
pub(super) struct Incoming(mpsc::Receiver<Bytes>);

impl Incoming {
    /// Takes what is written until the thread drops its end, which alone does not tell that it is whole.
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

/// Runs `work` on a thread of its own, which writes a blob.
///
/// # Errors
/// Those of the blobs' store; else those of `work`.
pub(super) async fn making<T, E>(
    blobs: &Arc<dyn BlobStore>,
    held: Held,
    work: impl FnOnce(&mut Outgoing) -> Result<T, E> + Send + 'static,
) -> Result<(T, NewBlob), E>
where
    T: Send + 'static,
    E: From<StepError> + Send + 'static,
{
    let (mut out, incoming) = pieces(held);
    let work = move || -> Result<T, E> {
        let done = work(&mut out)?;
        out.finish().map_err(|error| StepError::from(StoreError::from(error)))?;
        Ok(done)
    };
    let (done, blob) = tokio::join!(blocking(work), incoming.take(blobs));
    // The thread knows only that nobody listened any more.
    let blob = blob.map_err(StepError::from)?;
    Ok((done?, blob))
}
