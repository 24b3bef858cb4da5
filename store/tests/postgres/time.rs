//! The server's time, which transactions ask for.

use federation::id::Digest;
use federation::time::Timestamp;
use store::entity::used_nonce::NONCES_KEPT;

use crate::postgres::{fresh, store};

#[tokio::test]
async fn transactions_are_told_the_servers_time_at_which_they_ask() {
    let Some((cluster, database, url)) = fresh() else { return };
    let store = store(&url).await;
    let before = store.now().await.unwrap().unwrap();
    let told = store.transact("test", |tx| {
        Box::pin(async move {
            let first = tx.time().await?.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            Ok::<_, store::StoreError>((first, tx.time().await?.unwrap()))
        })
    });
    let (first, second) = told.await.unwrap();
    let after = store.now().await.unwrap().unwrap();
    assert!(before <= first && first < second && second <= after, "{before:?} {first:?} {second:?} {after:?}");
    cluster.drop_database(&database);
}

#[tokio::test]
async fn a_nonce_that_may_have_been_forgotten_counts_as_used() {
    let Some((cluster, database, url)) = fresh() else { return };
    let store = &store(&url).await;
    let now = store.now().await.unwrap().unwrap();
    let used = async |n: u8, expires: i64| {
        let (digest, expires) = (Digest([n; 32]), Timestamp(expires));
        store.transact("use", |tx| Box::pin(async move { tx.use_nonce(digest, expires).await })).await.unwrap()
    };
    let kept = i64::try_from(NONCES_KEPT.as_millis()).unwrap();
    assert!(used(1, now.0 - kept + 60_000).await);
    assert!(!used(2, now.0 - kept).await, "its row may have been there, and have gone");
    cluster.drop_database(&database);
}
