//! Guarantees of sessions.

use super::sample::{after, collecting};
use crate::{Result, Store, StoreError};

/// An attempt has one phase, the newest; it is deleted once.
pub async fn a_session_is_replaced_and_deleted(store: &Store) {
    let open = &collecting(store, 1).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert_eq!(tx.session(open.key, 1).await?, None);
                assert!(!tx.delete_session(open.key, 1).await?);
                tx.put_session(open.key, 1, b"first", after(1)).await?;
                assert_eq!(tx.session(open.key, 1).await?.as_deref(), Some(b"first".as_slice()));
                let second = vec![2; 100_000];
                tx.put_session(open.key, 1, &second, after(2)).await?;
                assert_eq!(tx.session(open.key, 1).await?.as_deref(), Some(second.as_slice()));
                assert_eq!(tx.session(open.key, 2).await?, None);
                assert!(tx.delete_session(open.key, 1).await?);
                assert_eq!(tx.session(open.key, 1).await?, None);
                let nowhere = tx.put_session(open.key, 2, b"first", after(1)).await;
                assert!(matches!(nowhere, Err(StoreError::Conflict(_))));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
