//! Blobs on their way into a backup and out of it: linked where both are files of one disk, else copied.

use std::io;
use std::path::PathBuf;

use federation::id::Digest;
use store::{BlobStore, StoreError, place_of};

/// How a blob came to be where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    Linked,
    Copied,
}

/// Two folders of blobs whose files may be linked.
pub(super) struct Folders {
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
}

/// Puts a blob into `to`, whole or not at all. Its bytes are verified on the way.
///
/// # Errors
/// `MissingBlob`; `Corrupt` if the bytes do not have the digest; `Full`.
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

/// False where files cannot be linked, for example between two disks.
async fn link(
    from: &dyn BlobStore,
    Folders { from: source, to }: &Folders,
    digest: Digest,
) -> Result<bool, StoreError> {
    // Before the second name is given: what has a name in a backup was verified.
    drop(from.open_verified(digest).await?);
    let (source, place) = (place_of(source, digest), place_of(to, digest));
    if let Some(folder) = place.parent() {
        store::private::make_folder(folder)?;
    }
    // One of another size is in its place.
    match std::fs::remove_file(&place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    Ok(std::fs::hard_link(source, place).is_ok())
}

/// Copies a blob and verifies it on the way. What was in its place is replaced.
///
/// # Errors
/// `MissingBlob`; `Corrupt` if the bytes do not have the digest; `Full`.
pub(crate) async fn copy_blob(from: &dyn BlobStore, to: &dyn BlobStore, digest: Digest) -> Result<(), StoreError> {
    store::transfer(from.open(digest).await?, to, digest).await
}
