//! A blob on its way from one store to another, piece by piece.

use std::io::Read as _;

use bytes::Bytes;
use federation::id::Digest;

use super::{BlobRead, BlobStore};
use crate::error::{Result, StoreError};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// Copies the blob that `blob` reads into `to`, and replaces an existing copy. Its bytes are verified on the way.
///
/// # Errors
/// `Corrupt` if the bytes do not have the digest, and those of either store; the blob is then not stored.
pub async fn transfer(mut blob: Box<dyn BlobRead>, to: &dyn BlobStore, digest: Digest) -> Result<()> {
    let mut writer = to.writer().await?;
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        let read = move || {
            (&mut blob).take(PIECE as u64).read_to_end(&mut piece)?;
            Ok::<_, std::io::Error>((blob, piece))
        };
        let (rest, piece) = crate::with_files(read).await??;
        blob = rest;
        if piece.is_empty() {
            break;
        }
        writer.write(Bytes::from(piece)).await?;
    }
    match writer.finish(Some(digest)).await {
        Err(StoreError::Conflict(why)) => Err(StoreError::corrupt(why)),
        finished => finished.map(drop),
    }
}
