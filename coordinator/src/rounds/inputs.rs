//! Reading stored inputs, whole or in parts.

use std::sync::Arc;

use federation::id::Digest;
use secure_agg::upload::PartTree;
use store::{BlobRead, BlobStore, PartsRead, StoreError};

/// Opens an input of `bytes` bytes by its name: the digest of its blob, or of the list of its parts. The reader of a list verifies each
/// part. What this process has stored or verified, and whose file is unchanged since, is not hashed again
/// ([`BlobStore::open_known`]).
///
/// # Errors
/// `MissingBlob`; `Corrupt` if the blob is neither.
pub(crate) async fn open_input(
    blobs: &Arc<dyn BlobStore>,
    name: Digest,
    bytes: u64,
) -> Result<Box<dyn BlobRead>, StoreError> {
    let blob = blobs.open_known(name).await?;
    // A list is shorter than any input in parts.
    if blob.size() == bytes {
        return Ok(blob);
    }
    drop(blob);
    let tree = PartTree::decode(&blobs.get(name).await?).filter(|tree| tree.is_parted() && tree.bytes() == bytes);
    let tree = tree.ok_or_else(|| StoreError::corrupt(format!("blob {name} is no input of {bytes} bytes")))?;
    Ok(Box::new(open_parts(blobs, &tree).trusting_known()))
}

/// The parts of an input, in order.
pub(crate) fn open_parts(blobs: &Arc<dyn BlobStore>, tree: &PartTree) -> PartsRead {
    let parts = (0..).map_while(|number| tree.part(number)).map(|(digest, bytes)| (Digest(digest), bytes));
    PartsRead::new(Arc::clone(blobs), parts)
}
