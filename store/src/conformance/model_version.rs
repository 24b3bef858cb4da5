//! Promises about model versions.

use super::sample::{model_version, task, task_id};
use crate::{Result, Store, StoreError};

/// Versions are unique, have their parents, and are listed newest first.
pub async fn versions_are_added_and_listed(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert!(matches!(tx.insert_model_version(&model_version(1, 0)).await, Err(StoreError::Conflict(_))));
                tx.insert_task(&task(1, "one")).await?;
                assert_eq!(tx.latest_model_version(task_id(1)).await?, None);
                for version in 0..=2 {
                    tx.insert_model_version(&model_version(1, version)).await?;
                }
                for bad in [2, 4] {
                    let refused = tx.insert_model_version(&model_version(1, bad)).await;
                    assert!(matches!(refused, Err(StoreError::Conflict(_))));
                }
                assert_eq!(tx.model_version(task_id(1), 1).await?, Some(model_version(1, 1)));
                assert_eq!(tx.model_version(task_id(1), 3).await?, None);
                assert_eq!(tx.latest_model_version(task_id(1)).await?, Some(model_version(1, 2)));
                assert_eq!(tx.model_versions(task_id(1), None, 2).await?, [2, 1].map(|v| model_version(1, v)));
                assert_eq!(tx.model_versions(task_id(1), Some(1), 2).await?, [model_version(1, 0)]);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
