//! Guarantees of model versions.

use federation::model_version::ModelVersion;
use federation::round::RoundState;

use super::sample::{after, collecting, digest, model_version, moved, participant_id, task, task_id};
use crate::entity::model_version::StoredVersion;
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

/// Stored to the last bit; a norm that would clip everything, or cannot clip, is rejected.
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

/// Removing an old version keeps its row and releases its blob. Pinned and excepted versions and the base of an open
/// round keep their blobs.
pub async fn old_versions_are_removed_unless_they_are_needed(store: &Store) {
    collecting(store, 1).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for version in 0..=6 {
                    tx.insert_model_version(&model_version(1, version)).await?;
                }
                let (task, unknown) = (task_id(1), task_id(7));
                assert!(tx.pin_version(task, 2, true, after(5)).await?);
                assert!(
                    !tx.pin_version(task, 7, true, after(5)).await?
                        && !tx.pin_version(unknown, 2, false, after(5)).await?
                );
                // The open round begins with version 0.
                assert_eq!(tx.remove_versions(task, 5, &[3], after(9)).await?, 2);
                assert_eq!(tx.remove_versions(task, 5, &[3], after(10)).await?, 0);
                let removed = |version: u32, at| StoredVersion {
                    model: model_version(1, version),
                    pinned_at: (version == 2).then(|| after(5)),
                    removed_at: at,
                };
                let gone = Some(after(9));
                let expected = [None, gone, None, None, gone, None, None];
                let expected: Vec<_> = (0..7).zip(expected).map(|(version, at)| removed(version, at)).rev().collect();
                assert_eq!(tx.stored_versions(task, None, 10).await?, expected);
                assert_eq!(tx.stored_version(task, 4).await?.as_ref(), expected.get(2));
                assert_eq!(tx.model_version(task, 4).await?, Some(model_version(1, 4)), "its row stays");
                let needed = tx.referenced_blobs().await?;
                let kept: Vec<_> = (0..=6).filter(|version| needed.contains(&digest(200 + version))).collect();
                assert_eq!(kept, [0, 2, 3, 5, 6]);
                assert!(!tx.pin_version(task, 4, true, after(11)).await?, "there is nothing to keep");
                assert!(tx.pin_version(task, 2, false, after(11)).await?);
                assert_eq!(tx.remove_versions(task, 5, &[], after(12)).await?, 2);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A participant needs a version for the attempt that starts from it and waits for the participant.
pub async fn a_version_is_wanted_for_the_attempt_that_starts_from_it(store: &Store) {
    let open = &collecting(store, 2).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for version in 0..=1 {
                    tx.insert_model_version(&model_version(1, version)).await?;
                }
                let (task, member, stranger) = (task_id(1), participant_id(1), participant_id(9));
                assert_eq!(open.base_version, 0);
                for (version, participant, attempt) in
                    [(0, member, Some((open.key, RoundState::Collecting))), (1, member, None), (0, stranger, None)]
                {
                    let found = tx.wanted_version(task, version, participant).await?.unwrap();
                    assert_eq!(Some(found.version), tx.stored_version(task, version).await?);
                    assert_eq!(found.attempt, attempt, "version {version} for {participant}");
                }
                assert_eq!(tx.wanted_version(task, 2, member).await?, None);
                assert_eq!(tx.wanted_version(task_id(2), 0, member).await?, None);
                tx.transition_round(open, &moved(open, RoundState::Cancelled, after(3))).await?;
                assert_eq!(tx.wanted_version(task, 0, member).await?.unwrap().attempt, None, "it is over");
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
