//! The published file of one model version, hashed and read once however many participants of one process start from it.

use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use learning::{CheckpointError, Layout, Parameters, checkpoint};
use ring::digest::{Context, SHA256};
use wire::Digest;

use recipe::digest::sha256;

/// A model version's file, with results that are computed once: for many participants in one process that start from
/// the same version.
pub struct ModelFile {
    content: Content,
    /// Of the file, in bytes.
    length: u64,
    sha256: Digest,
}

enum Content {
    /// The file, and the parameters as first read.
    Whole(Bytes, OnceLock<Arc<Parameters>>),
    /// The parameters read from a file on disk.
    Read(Result<Arc<Parameters>, CheckpointError>),
}

impl ModelFile {
    /// Any bytes; a participant that expects another version detects that by the digest.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        let (sha256, length) = (sha256(&bytes), bytes.len() as u64);
        Self { content: Content::Whole(bytes, OnceLock::new()), length, sha256 }
    }

    /// Reads a model file of this layout. Memory use: the parameters and a small buffer.
    pub(in crate::participant) fn read(file: File, layout: &Arc<Layout>) -> io::Result<Self> {
        let mut file = Hashed { file, context: Context::new(&SHA256), length: 0 };
        let read = checkpoint::read_published_from(&mut file, layout)?;
        // Bytes after the end of reading belong to the digest, too.
        io::copy(&mut file, &mut io::sink())?;
        let Hashed { context, length, .. } = file;
        let mut sha256 = Digest([0; 32]);
        sha256.0.copy_from_slice(context.finish().as_ref());
        Ok(Self { content: Content::Read(read.map(Arc::new)), length, sha256 })
    }

    /// Size of the file in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The file; `None` if only its parameters are here.
    pub(in crate::participant) fn bytes(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Whole(bytes, _) => Some(bytes),
            Content::Read(_) => None,
        }
    }

    /// The file's bytes, written again if only its parameters are here: a model has one form.
    pub(in crate::participant) fn content(&self) -> Result<Bytes, CheckpointError> {
        match &self.content {
            Content::Whole(bytes, _) => Ok(bytes.clone()),
            Content::Read(Ok(parameters)) => checkpoint::write(parameters).map(Bytes::from),
            Content::Read(Err(error)) => Err(error.clone()),
        }
    }

    #[must_use]
    pub fn sha256(&self) -> Digest {
        self.sha256
    }

    /// The parameters in it, if it is a model of this layout in the form that a published model has.
    pub(in crate::participant) fn parameters(&self, layout: &Arc<Layout>) -> Result<Arc<Parameters>, CheckpointError> {
        let (bytes, parameters) = match &self.content {
            Content::Whole(bytes, parameters) => (bytes, parameters),
            Content::Read(read) => return read.clone(),
        };
        if let Some(read) = parameters.get().filter(|read| read.layout() == layout) {
            return Ok(Arc::clone(read));
        }
        let read = Arc::new(checkpoint::read_published(bytes, layout)?);
        // The first result is kept; a file has one layout unless two tasks disagree.
        let _ = parameters.set(Arc::clone(&read));
        Ok(read)
    }
}

/// A file that is hashed as it is read.
struct Hashed {
    file: File,
    context: Context,
    length: u64,
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read(buffer)?;
        self.context.update(&buffer[..got]);
        self.length += got as u64;
        Ok(got)
    }
}
