//! Guarantees of the check of rules between rows.

use federation::round::RoundState;

use super::sample::{admitted, after, collecting, digest, model_version, moved, participant_id, task_id};
use crate::entity::partial_sum::PartialSum;
use crate::{Result, Store};

/// Rows that were written as a coordinator writes them satisfy all rules; each missing or superfluous row breaks one.
pub async fn rules_that_are_broken_are_found(store: &Store) {
    let open = &collecting(store, 2).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let broken = async |tx: &mut crate::Transaction<'_>| {
                    let broken = tx.broken_rules().await.unwrap();
                    assert!(broken.iter().all(|broken| broken.task == task_id(1)), "{broken:?}");
                    broken.into_iter().map(|broken| (broken.rule, broken.number)).collect::<Vec<_>>()
                };
                let (newest, base) = (
                    ("a task's newest model version has a row", 0),
                    ("a round starts from a model version that has a row", 1),
                );
                assert_eq!(broken(tx).await, [newest, base]);
                tx.insert_model_version(&model_version(1, 0)).await?;
                assert_eq!(broken(tx).await, []);
                tx.insert_admitted(&[admitted(open, 1)]).await?;
                tx.put_partial_sum(&PartialSum { attempt: open.key, blob: digest(50), inputs: 1 }, None).await?;
                assert_eq!(broken(tx).await, [("a partial sum contains the inputs that are marked as folded", 1)]);
                tx.mark_folded(open.key, &[participant_id(1)]).await?;
                assert_eq!(broken(tx).await, []);
                assert!(tx.transition_round(open, &moved(open, RoundState::Completed, after(3))).await?);
                let unpublished = ("a completed round has published a model version, and no other round has", 1);
                assert_eq!(broken(tx).await, [unpublished]);
                tx.insert_model_version(&model_version(1, 1)).await?;
                assert_eq!(broken(tx).await, [("no model version is newer than its task says", 1), unpublished]);
                tx.set_round_result(open.key, &[], Some(1)).await?;
                assert!(tx.task_advanced(task_id(1), 1, 1).await?);
                assert_eq!(broken(tx).await, []);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    assert_eq!(store.problems().await.unwrap(), Vec::<String>::new());
}
