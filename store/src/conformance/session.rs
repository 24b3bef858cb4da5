//! Guarantees of sessions.

use bytes::Bytes;

use super::sample::{after, collecting};
use crate::{Result, Store};
use federation::id::Attempt;

/// An attempt has one phase, the newest; it is deleted once.
pub async fn a_session_is_replaced_and_deleted(store: &Store) {
    let open = &collecting(store, 1).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert_eq!(tx.session(open.key).await?, None);
                assert_eq!(tx.state_and_session(open.key).await?, Some((open.state, None)));
                assert!(!tx.delete_session(open.key).await?);
                tx.put_session(open.key, b"first", after(1)).await?;
                assert_eq!(tx.session(open.key).await?.as_deref(), Some(b"first".as_slice()));
                let second = vec![2; 100_000];
                tx.put_session(open.key, &second, after(2)).await?;
                assert_eq!(tx.session(open.key).await?.as_deref(), Some(second.as_slice()));
                assert_eq!(
                    tx.state_and_session(open.key).await?,
                    Some((open.state, Some(Bytes::from(second.to_vec()))))
                );
                assert_eq!(tx.session(Attempt { attempt: 2, ..open.key }).await?, None);
                assert_eq!(tx.state_and_session(Attempt { attempt: 2, ..open.key }).await?, None);
                assert!(tx.delete_session(open.key).await?);
                assert_eq!(tx.session(open.key).await?, None);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    refused!(store, |tx| tx.put_session(Attempt { attempt: 2, ..open.key }, b"first", after(1)));
}
