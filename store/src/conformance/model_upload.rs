//! Guarantees of uploaded models.

use std::collections::HashSet;

use super::sample::{after, digest};
use crate::entity::model_upload::MODEL_UPLOADS_KEPT;
use crate::{Result, Store};

/// An uploaded model, or a part of one, is needed for a day after it was last stored, or until it is dropped.
pub async fn uploaded_models_are_needed_until_they_expire(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for number in 1..=3 {
                    tx.keep_model_upload(digest(number), after(0)).await?;
                }
                tx.keep_model_upload(digest(2), after(5)).await?;
                assert_eq!(tx.referenced_blobs().await?, HashSet::from([1, 2, 3].map(digest)));
                assert_eq!(tx.blob_references().await?, []);
                tx.drop_model_uploads(&[digest(3), digest(9)]).await?;
                assert_eq!(tx.forget_model_uploads(after(4).plus(MODEL_UPLOADS_KEPT)).await?, 1);
                assert_eq!(tx.referenced_blobs().await?, HashSet::from([digest(2)]));
                assert_eq!(tx.forget_model_uploads(after(5).plus(MODEL_UPLOADS_KEPT)).await?, 1);
                assert_eq!(tx.referenced_blobs().await?, HashSet::new());
                assert_eq!(tx.doom(&[digest(1)], after(9)).await?, [digest(1)]);
                assert!(matches!(
                    tx.keep_model_upload(digest(1), after(9)).await,
                    Err(crate::StoreError::BeingRemoved(_))
                ));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
