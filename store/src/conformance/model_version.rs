//! Guarantees of model versions.

use federation::model_version::ModelVersion;

use super::sample::{model_version, task, task_id};
use crate::{Result, Store};

/// Versions are unique, have parents, and are listed newest first.
pub async fn versions_are_added_and_listed(store: &Store) {
    let first = &model_version(1, 0);
    refused!(store, |tx| tx.insert_model_version(first));
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(1, "one")).await?;
                assert_eq!(tx.latest_model_version(task_id(1)).await?, None);
                for version in 0..=2 {
                    tx.insert_model_version(&model_version(1, version)).await?;
                }
                Ok(())
            })
        })
        .await;
    result.unwrap();
    for bad in &[model_version(1, 2), model_version(1, 4)] {
        refused!(store, |tx| tx.insert_model_version(bad));
    }
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
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

/// Stored to the last bit; a norm that would clip nothing or everything is rejected.
pub async fn a_clipping_norm_comes_back_or_is_refused(store: &Store) {
    let task = &task(1, "one");
    let result: Result<()> = store.transact("test", |tx| Box::pin(async move { tx.insert_task(task).await })).await;
    result.unwrap();
    for bad in [0.0, -0.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        let bad = &ModelVersion { clip: Some(bad), ..model_version(1, 0) };
        refused!(store, |tx| tx.insert_model_version(bad));
    }
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let norms = [None, Some(1.0), Some(1.0 / 3.0), Some(f64::MIN_POSITIVE), Some(f64::MAX)];
                for (version, clip) in (0..).zip(norms) {
                    let stored = ModelVersion { clip, ..model_version(1, version) };
                    tx.insert_model_version(&stored).await?;
                    assert_eq!(tx.model_version(task_id(1), version).await?, Some(stored));
                }
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
