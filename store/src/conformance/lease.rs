//! Guarantees of leases.

use std::time::Duration;

use uuid::Uuid;

use super::sample::{NOW, after};
use crate::{Result, Store};

const TTL: Duration = Duration::from_millis(100);
const ANN: Uuid = Uuid::from_u128(1);
const BOB: Uuid = Uuid::from_u128(2);

/// One holder at a time, which may acquire it again, renew it and release it.
pub async fn a_lease_is_held_renewed_and_released(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert!(tx.acquire_lease("work", ANN, NOW, TTL).await?);
                assert!(tx.acquire_lease("work", ANN, after(1), TTL).await?);
                assert!(!tx.acquire_lease("work", BOB, after(100), TTL).await?);
                assert!(tx.acquire_lease("other", BOB, NOW, TTL).await?);
                assert!(tx.renew_lease("work", ANN, after(100), TTL).await?);
                assert!(!tx.renew_lease("work", BOB, after(100), TTL).await?);
                assert!(!tx.acquire_lease("work", BOB, after(199), TTL).await?);
                assert!(tx.acquire_lease("work", BOB, after(200), TTL).await?);
                assert!(!tx.renew_lease("work", ANN, after(201), TTL).await?);
                assert!(!tx.release_lease("work", ANN).await?);
                assert!(tx.release_lease("work", BOB).await?);
                assert!(tx.acquire_lease("work", ANN, after(202), TTL).await?);
                tx.clear_leases().await?;
                assert!(tx.acquire_lease("work", BOB, after(203), TTL).await?);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A lease whose start lies in the future is free.
pub async fn a_clock_set_back_does_not_make_a_lease_immortal(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert!(tx.acquire_lease("work", ANN, after(1_000_000), TTL).await?);
                assert!(!tx.acquire_lease("work", BOB, after(1_000_000), TTL).await?);
                assert!(tx.acquire_lease("work", BOB, after(999_999), TTL).await?);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
