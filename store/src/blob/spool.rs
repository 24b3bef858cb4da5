//! Files with bytes that arrive piece by piece, hashed on the way. The end decides whether a file is kept.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use federation::id::Digest;
use ring::digest::{Context, SHA256};

use super::{BlobRead, finish_digest};
use crate::error::{Result, StoreError};

/// Number of bytes buffered before they are passed to a blocking thread: just enough to amortise the hand-over, since
/// every upload in progress holds as many.
const BUFFER_BYTES: usize = 64 << 10;

/// A file that is not a blob yet; removed when dropped, unless it was renamed.
pub(super) struct Unfinished {
    pub(super) file: File,
    pub(super) path: PathBuf,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After the rename the file is gone; any other failure leaves one that the next start removes.
        let _ = fs::remove_file(&self.path);
    }
}

struct Open {
    unfinished: Unfinished,
    context: Context,
    bytes: u64,
}

impl Open {
    fn append(&mut self, chunks: &[Bytes]) -> io::Result<()> {
        for chunk in chunks {
            self.unfinished.file.write_all(chunk)?;
            self.context.update(chunk);
            self.bytes += chunk.len() as u64;
        }
        Ok(())
    }
}

/// Bytes that arrive piece by piece.
pub(super) struct Spool {
    /// `None` after an error, or if a caller gave up during a write.
    open: Option<Open>,
    buffer: Vec<Bytes>,
    buffered: usize,
}

impl Spool {
    pub(super) fn new(unfinished: Unfinished) -> Self {
        let open = Open { unfinished, context: Context::new(&SHA256), bytes: 0 };
        Self { open: Some(open), buffer: Vec::new(), buffered: 0 }
    }

    fn take(&mut self) -> Result<(Open, Vec<Bytes>)> {
        let open = self.open.take().ok_or_else(|| StoreError::fault("a blob writer was used after it failed"))?;
        self.buffered = 0;
        Ok((open, std::mem::take(&mut self.buffer)))
    }

    /// Appends bytes. After an error it must be dropped.
    pub(super) async fn append(&mut self, chunk: Bytes) -> Result<()> {
        self.buffered += chunk.len();
        self.buffer.push(chunk);
        if self.buffered < BUFFER_BYTES {
            return Ok(());
        }
        let (mut open, chunks) = self.take()?;
        self.open = Some(
            blocking(move || {
                open.append(&chunks)?;
                Ok(open)
            })
            .await?,
        );
        Ok(())
    }

    /// Passes the digest of all bytes and their file to `end`, on a blocking thread.
    pub(super) async fn finish<T: Send + 'static>(
        mut self,
        end: impl FnOnce(Digest, Spooled) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (mut open, chunks) = self.take()?;
        blocking(move || {
            open.append(&chunks)?;
            let Open { unfinished, context, bytes } = open;
            end(finish_digest(context), Spooled { unfinished, bytes })
        })
        .await
    }
}

/// A file with all of the bytes; removed when dropped, unless it was renamed.
pub(super) struct Spooled {
    pub(super) unfinished: Unfinished,
    /// Size of the file.
    pub(super) bytes: u64,
}

impl Spooled {
    pub(super) fn path(&self) -> &Path {
        &self.unfinished.path
    }

    /// A reader, during which the file stays.
    pub(super) async fn open(spooled: Arc<Self>) -> Result<Box<dyn BlobRead>> {
        blocking(move || {
            let read = FileRead { file: File::open(spooled.path())?, size: spooled.bytes, is_known: false };
            Ok(Box::new(SpooledRead { read, _spooled: spooled }) as Box<dyn BlobRead>)
        })
        .await
    }
}

struct SpooledRead {
    read: FileRead,
    _spooled: Arc<Spooled>,
}

impl std::fmt::Debug for SpooledRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.read.fmt(f)
    }
}

impl Read for SpooledRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read.read(buffer)
    }
}

impl Seek for SpooledRead {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.read.seek(to)
    }
}

impl BlobRead for SpooledRead {
    fn size(&self) -> u64 {
        self.read.size()
    }
}

/// A file open for reading.
#[derive(Debug)]
pub(super) struct FileRead {
    pub(super) file: File,
    pub(super) size: u64,
    /// It has the blob's digest, as far as this process can tell.
    pub(super) is_known: bool,
}

impl Read for FileRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl Seek for FileRead {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl BlobRead for FileRead {
    fn size(&self) -> u64 {
        self.size
    }

    fn cannot_have_changed(&self) -> bool {
        self.is_known
    }
}

pub(super) async fn blocking<T: Send + 'static>(act: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    super::with_files(act).await?
}
