//! Whether rows and blobs can be written.

use bytes::Bytes;
use federation::time::Timestamp;
use store::{Store, StoreError};

/// Tries both; leaves nothing behind.
///
/// # Errors
/// What the store says.
pub(crate) async fn check(store: &Store, now: Timestamp) -> Result<(), StoreError> {
    // A write transaction that changes nothing that anybody looks at.
    store
        .transact("readiness", |tx| Box::pin(async move { tx.expire_check_ins(Timestamp(now.0.min(0))).await }))
        .await?;
    let digest = store.blobs().put_bytes(Bytes::from_static(b"tributary readiness probe\n")).await?;
    store.blobs().delete(digest).await?;
    Ok::<_, StoreError>(())
}
