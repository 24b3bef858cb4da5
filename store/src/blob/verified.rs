//! Streaming reads that verify a blob's digest, with one piece in memory.

use std::io::{self, Read};

use federation::id::Digest;
use ring::digest::{Context, SHA256};

use super::{BlobRead, finish_digest};
use crate::error::StoreError;

/// Reads a blob to its end and verifies its digest there: the read that finds the end fails with
/// [`io::ErrorKind::InvalidData`], with a [`StoreError::Corrupt`] inside, if the bytes read are not the blob. Do not
/// trust the bytes until the end was found (a read of zero bytes without an error). Synchronous, like [`BlobRead`].
pub struct VerifiedRead {
    blob: Box<dyn BlobRead>,
    digest: Digest,
    context: Context,
}

impl VerifiedRead {
    /// Verifies `blob`, which was just opened under `digest`.
    #[must_use]
    pub fn new(blob: Box<dyn BlobRead>, digest: Digest) -> Self {
        Self { blob, digest, context: Context::new(&SHA256) }
    }

    /// Size of the blob in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.blob.size()
    }
}

impl Read for VerifiedRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.blob.read(buffer)?;
        if self.blob.cannot_have_changed() {
            return Ok(got);
        }
        self.context.update(&buffer[..got]);
        if got == 0 && !buffer.is_empty() && finish_digest(self.context.clone()) != self.digest {
            let problem = StoreError::corrupt(format!("what is stored as blob {} are other bytes", self.digest));
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Seek, SeekFrom};

    use super::super::sha256;
    use super::*;

    #[derive(Debug)]
    struct Stored(Cursor<Vec<u8>>);

    impl Read for Stored {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Seek for Stored {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    impl BlobRead for Stored {
        fn size(&self) -> u64 {
            self.0.get_ref().len() as u64
        }
    }

    fn read_by(step: usize, stored: &[u8], digest: Digest) -> io::Result<Vec<u8>> {
        let mut blob = VerifiedRead::new(Box::new(Stored(Cursor::new(stored.to_vec()))), digest);
        let (mut whole, mut piece) = (Vec::new(), vec![0; step]);
        loop {
            match blob.read(&mut piece)? {
                0 => return Ok(whole),
                got => whole.extend_from_slice(&piece[..got]),
            }
        }
    }

    #[test]
    fn only_the_whole_blob_ends_without_an_error() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let digest = sha256(&bytes);
        let mut flipped = bytes.clone();
        flipped[9_999] ^= 1;
        let longer = [&bytes[..], b"x"].concat();
        for step in [1, 7, 4_096, 20_000] {
            assert_eq!(read_by(step, &bytes, digest).unwrap(), bytes);
            for damaged in [&flipped[..], &bytes[..9_999], &longer, &[]] {
                let error = read_by(step, damaged, digest).unwrap_err().downcast::<StoreError>().unwrap();
                assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
            }
        }
        assert!(read_by(8, &[], sha256(&[])).unwrap().is_empty());
    }

    #[test]
    fn a_read_into_no_room_is_not_the_end() {
        let mut blob = VerifiedRead::new(Box::new(Stored(Cursor::new(b"abc".to_vec()))), sha256(b"abc"));
        assert_eq!(blob.read(&mut []).unwrap(), 0);
        let mut whole = String::new();
        assert_eq!(blob.read_to_string(&mut whole).unwrap(), 3);
    }
}
