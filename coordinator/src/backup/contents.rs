//! Transfers blobs into and out of backups: hard links within one disk, otherwise copies.

use std::io;
use std::path::PathBuf;

use federation::id::Digest;
use store::{BlobStore, StoreError, place_of};

/// How a blob was transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    Linked,
    Copied,
}

/// Two blob folders on the same disk, for hard links.
pub(super) struct Folders {
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
}

/// Transfers a blob to `to`, completely or not at all, and verifies its bytes.
///
/// # Errors
/// `MissingBlob`; `Corrupt` for a wrong digest; `Full`.
pub(super) async fn move_blob(
    from: &dyn BlobStore,
    to: &dyn BlobStore,
    folders: Option<&Folders>,
    digest: Digest,
) -> Result<Moved, StoreError> {
    if let Some(folders) = folders
        && link(from, folders, digest).await?
    {
        return Ok(Moved::Linked);
    }
    copy_blob(from, to, digest).await.map(|()| Moved::Copied)
}

/// Hard-links a blob. Returns false if linking fails, for example between two disks.
async fn link(
    from: &dyn BlobStore,
    Folders { from: source, to }: &Folders,
    digest: Digest,
) -> Result<bool, StoreError> {
    // Verified before linking: every named blob in a backup is intact.
    drop(from.open_verified(digest).await?);
    let (source, place) = (place_of(source, digest), place_of(to, digest));
    if let Some(folder) = place.parent() {
        store::private::make_folder(folder)?;
    }
    // Removes a file of another size.
    match std::fs::remove_file(&place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    Ok(std::fs::hard_link(source, place).is_ok())
}

/// Copies and verifies a blob; replaces an existing one.
///
/// # Errors
/// `MissingBlob`; `Corrupt` for a wrong digest; `Full`.
pub(crate) async fn copy_blob(from: &dyn BlobStore, to: &dyn BlobStore, digest: Digest) -> Result<(), StoreError> {
    store::transfer(from.open(digest).await?, to, digest).await
}
