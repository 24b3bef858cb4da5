//! Guarantees of idempotency keys.

use super::sample::{after, digest};
use crate::entity::idempotency::IdempotentAnswer;
use crate::{Result, Store};

/// Keys are distinguished by scope, written once, and removed after they expire.
pub async fn an_answer_is_found_again_until_it_expires(store: &Store) {
    let answer = |n: u8| IdempotentAnswer { request_sha256: digest(n), status: 201, body: vec![0, n, 255] };
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_idempotent("ann", "k", &answer(1), after(10)).await?;
                tx.insert_idempotent("bob", "k", &answer(2), after(20)).await?;
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let another = &answer(3);
    refused!(store, |tx| tx.insert_idempotent("ann", "k", another, after(10)));
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert_eq!(tx.find_idempotent("ann", "k").await?, Some(answer(1)));
                assert_eq!(tx.find_idempotent("ann", "other").await?, None);
                assert_eq!(tx.expire_idempotent(after(10)).await?, 1);
                assert_eq!(tx.find_idempotent("ann", "k").await?, None);
                assert_eq!(tx.find_idempotent("bob", "k").await?, Some(answer(2)));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
