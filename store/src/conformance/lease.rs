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
                let first = tx.acquire_lease("work", ANN, NOW, TTL).await?.unwrap();
                let ann = tx.acquire_lease("work", ANN, after(1), TTL).await?.unwrap();
                assert!(first < ann);
                assert!(!tx.renew_lease("work", first, after(1), TTL).await?, "it was acquired again since");
                assert_eq!(tx.acquire_lease("work", BOB, after(100), TTL).await?, None);
                assert!(tx.acquire_lease("other", BOB, NOW, TTL).await?.is_some());
                assert!(tx.renew_lease("work", ann, after(100), TTL).await?);
                assert_eq!(tx.acquire_lease("work", BOB, after(199), TTL).await?, None);
                let bob = tx.acquire_lease("work", BOB, after(200), TTL).await?.unwrap();
                assert!(!tx.renew_lease("work", ann, after(201), TTL).await?);
                assert!(!tx.release_lease("work", ann).await?);
                assert!(tx.release_lease("work", bob).await?);
                assert!(!tx.release_lease("work", bob).await?, "once");
                assert!(!tx.renew_lease("work", bob, after(201), TTL).await?, "it was released");
                let again = tx.acquire_lease("work", ANN, after(202), TTL).await?.unwrap();
                assert_eq!((tx.clear_leases().await?, tx.clear_leases().await?), (2, 0), "how many were held");
                assert!(!tx.renew_lease("work", again, after(203), TTL).await?);
                assert!(tx.acquire_lease("work", BOB, after(203), TTL).await?.is_some());
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A former holder cannot renew the lease by an old token, however many holders and gaps came since.
pub async fn no_two_acquisitions_of_a_lease_have_one_token(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let mut tokens = Vec::new();
                for step in 0..10_i64 {
                    let holder = if step % 3 == 0 { ANN } else { BOB };
                    let at = after(step * 100);
                    tokens.push(tx.acquire_lease("work", holder, at, TTL).await?.unwrap());
                    for old in &tokens[..tokens.len() - 1] {
                        assert!(!tx.renew_lease("work", *old, at, TTL).await?);
                    }
                    if step % 2 == 0 {
                        assert!(tx.release_lease("work", tokens[tokens.len() - 1]).await?);
                    }
                }
                assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A lease that starts later than a requested one would end is free. A clock that is less far behind cannot take it
/// away.
pub async fn a_clock_set_back_does_not_make_a_lease_immortal(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert!(tx.acquire_lease("work", ANN, after(1_000_000), TTL).await?.is_some());
                assert_eq!(tx.acquire_lease("work", BOB, after(1_000_000), TTL).await?, None);
                assert_eq!(tx.acquire_lease("work", BOB, after(999_999), TTL).await?, None, "a clock is behind");
                assert_eq!(tx.acquire_lease("work", BOB, after(999_900), TTL).await?, None, "by as much as it lasts");
                assert!(tx.acquire_lease("work", BOB, after(999_899), TTL).await?.is_some());
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
