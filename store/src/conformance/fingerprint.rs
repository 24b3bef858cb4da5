//! Guarantees of fingerprints.

use super::sample::digest;
use crate::{Result, Store};

/// The first fingerprint of a thing stays if another one is offered.
pub async fn the_first_fingerprint_stays(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert_eq!(tx.first_fingerprint("key", digest(1)).await?, digest(1));
                assert_eq!(tx.first_fingerprint("key", digest(2)).await?, digest(1));
                assert_eq!(tx.fingerprints().await?, ["key"]);
                assert_eq!(tx.first_fingerprint("certificate", digest(2)).await?, digest(2));
                assert_eq!(tx.fingerprints().await?, ["certificate", "key"]);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
