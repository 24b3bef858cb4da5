//! Guarantees of transactions.

use std::time::Duration;

use super::sample::{NOW, digest, round, task, task_id};
use crate::entity::idempotency::IdempotentAnswer;
use crate::{Result, Store, StoreError};

async fn stored(store: &Store, n: u128) -> bool {
    let found: Result<_> = store.read("test", |tx| Box::pin(async move { tx.task(task_id(n)).await })).await;
    found.unwrap().is_some()
}

async fn insert(store: &Store, n: u128) -> Result<()> {
    store.transact("test", |tx| Box::pin(async move { tx.insert_task(&task(n, &format!("task-{n}"))).await })).await
}

/// A transaction that ends before its commit, in any way, is rolled back and releases its locks.
pub async fn an_error_or_a_drop_leaves_nothing(store: &Store) {
    let failed: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(1, "one")).await?;
                Err(StoreError::fault("changed my mind"))
            })
        })
        .await;
    assert!(matches!(failed, Err(StoreError::Fault(_))));
    assert!(!stored(store, 1).await);

    let (inserted, reached) = tokio::sync::oneshot::channel::<()>();
    let mut inserted = Some(inserted);
    let hanging = store.clone();
    let transaction = tokio::spawn(async move {
        let result: Result<()> = hanging
            .transact("test", |tx| {
                let inserted = inserted.take();
                Box::pin(async move {
                    tx.insert_task(&task(1, "one")).await?;
                    drop(inserted);
                    std::future::pending().await
                })
            })
            .await;
        result
    });
    // The sender is dropped once the row is inserted: only that ends the wait.
    reached.await.unwrap_err();
    transaction.abort();
    assert!(transaction.await.unwrap_err().is_cancelled());
    insert(store, 2).await.unwrap();
    assert!(!stored(store, 1).await);
    assert!(stored(store, 2).await);
}

/// A change within a read fails on every database.
pub async fn a_read_refuses_changes(store: &Store) {
    let refused: Result<()> =
        store.read("test", |tx| Box::pin(async move { tx.insert_task(&task(1, "one")).await })).await;
    assert!(matches!(refused, Err(StoreError::Fault(_))));
    let refused: Result<Option<u64>> = store
        .read("test", |tx| {
            Box::pin(async move { tx.acquire_lease("work", uuid::Uuid::nil(), NOW, Duration::ZERO).await })
        })
        .await;
    assert!(matches!(refused, Err(StoreError::Fault(_))));
    let unmoved = round(1, 1, 1);
    let refused: Result<bool> = store
        .read("test", |tx| {
            let unmoved = &unmoved;
            Box::pin(async move { tx.transition_round(unmoved, unmoved).await })
        })
        .await;
    assert!(matches!(refused, Err(StoreError::Fault(_))));
    assert!(!stored(store, 1).await);
}

/// A transaction that does not fit is rolled back with an error, and the next one that fits succeeds.
pub async fn a_full_disk_is_told_and_survived(store: &Store) {
    insert(store, 1).await.unwrap();
    store.rows.limit_pages(1).await.unwrap();
    for _ in 0..2 {
        let full: Result<()> = store
            .transact("test", |tx| {
                Box::pin(async move {
                    tx.insert_task(&task(2, "two")).await?;
                    let answer = IdempotentAnswer { request_sha256: digest(1), status: 200, body: vec![7; 1 << 20] };
                    tx.insert_idempotent("scope", "key", &answer, NOW).await
                })
            })
            .await;
        assert!(matches!(full, Err(StoreError::Full)), "{full:?}");
        assert!(stored(store, 1).await);
        assert!(!stored(store, 2).await);
    }
    store.rows.limit_pages(1 << 20).await.unwrap();
    insert(store, 2).await.unwrap();
    assert!(stored(store, 2).await);
}

/// A closure may borrow, and the future may run on any thread.
pub async fn a_closure_may_borrow(store: &Store) {
    fn sendable<T: Send>(value: T) -> T {
        value
    }
    let row = task(1, "one");
    let borrowed = &row;
    let result: Result<()> =
        sendable(store.transact("test", |tx| Box::pin(async move { tx.insert_task(borrowed).await }))).await;
    result.unwrap();
    assert!(stored(store, 1).await);
}
