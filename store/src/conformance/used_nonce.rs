//! Guarantees of nonces.

use federation::time::Timestamp;

use super::sample::digest;
use crate::Store;
use crate::entity::used_nonce::NONCES_KEPT;

/// A time far in the future of any database.
fn after(ms: i64) -> Timestamp {
    Timestamp(4_000_000_000_000 + ms)
}

/// A second use of the nonce is rejected until the nonce is forgotten.
pub async fn a_nonce_is_used_once(store: &Store) {
    let used = async |n: u8, expires_ms: i64| {
        let (digest, expires) = (digest(n), after(expires_ms));
        store.transact("use", |tx| Box::pin(async move { tx.use_nonce(digest, expires).await })).await.unwrap()
    };
    assert!(used(1, 10).await);
    assert!(!used(1, 10).await);
    assert!(!used(1, 99).await, "whatever is said of its end");
    assert!(used(2, 20).await);
    let forget = async |ms| {
        store
            .transact("forget", |tx| Box::pin(async move { tx.forget_nonces(after(ms).plus(NONCES_KEPT)).await }))
            .await
            .unwrap()
    };
    assert_eq!(forget(9).await, 0);
    assert_eq!(forget(10).await, 1);
    assert!(used(1, 30).await);
    assert!(!used(2, 20).await);
}

/// Of many that use it at once, one is the first.
pub async fn of_many_at_once_one_uses_a_nonce(store: &Store) {
    let using = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            store.transact("use", |tx| Box::pin(async move { tx.use_nonce(digest(7), after(10)).await })).await.unwrap()
        })
    });
    let used = futures_util::future::join_all(using).await;
    assert_eq!(used.into_iter().filter(|first| matches!(first, Ok(true))).count(), 1);
}
