//! Guarantees of blobs that rows need.

use std::collections::HashSet;

use federation::round::RoundState;

use super::sample::{
    admitted, advance, after, collecting, digest, model_version, moved, participant_id, round, sharing,
};
use crate::entity::noised_sum::NoisedSumRow;
use crate::entity::partial_sum::PartialSum;
use crate::{Result, Store};

/// Inputs are needed until they are folded or their round has ended, sums until it has ended.
pub async fn needed_blobs_are_named_and_no_others(store: &Store) {
    let open = &collecting(store, 2).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let key = open.key;
                tx.insert_model_version(&model_version(1, 0)).await?;
                tx.insert_admitted(&[admitted(open, 1)]).await?;
                tx.insert_admitted(&[admitted(open, 2)]).await?;
                tx.mark_folded(key, &[participant_id(1)]).await?;
                tx.put_partial_sum(&PartialSum { attempt: key, blob: digest(50), inputs: 1 }, None).await?;
                let noised =
                    NoisedSumRow { attempt: key, blob: digest(51), participants: 1, created_at: after(2), work: None };
                tx.insert_noised_sum(&noised).await?;
                let needed = HashSet::from([digest(200), digest(102), digest(50), digest(51)]);
                assert_eq!(tx.referenced_blobs().await?, needed);
                assert!(tx.transition_round(open, &moved(open, RoundState::Cancelled, after(3))).await?);
                assert_eq!(tx.referenced_blobs().await?, HashSet::from([digest(200)]));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A step continues from the previous version, or from the one before it after a rollback; older states are garbage.
pub async fn states_of_superseded_versions_are_not_needed(store: &Store) {
    let open = &collecting(store, 1).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for version in 0..=4 {
                    tx.insert_model_version(&model_version(1, version)).await?;
                }
                let models = (200..=204).map(digest);
                let needed = |states: &[u8]| models.clone().chain(states.iter().map(|&n| digest(220 + n))).collect();
                // The open round starts from version 0, which lacks a blob.
                assert_eq!(tx.referenced_blobs().await?, needed(&[3, 4]));
                assert!(tx.transition_round(open, &moved(open, RoundState::Cancelled, after(3))).await?);
                tx.insert_round(&round(1, 2, 1)).await?;
                assert_eq!(tx.referenced_blobs().await?, needed(&[1, 3, 4]));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A phase missing here would cost the round its inputs.
pub async fn blobs_are_needed_in_every_state_that_has_not_ended(store: &Store) {
    let open = &sharing(store, 1).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                use RoundState::{Aggregating, Collecting, Completed, Confirming, Unmasking};
                let mut round = open.clone();
                tx.insert_admitted(&[admitted(open, 1)]).await?;
                let needed = HashSet::from([digest(101)]);
                assert_eq!(tx.referenced_blobs().await?, needed);
                for state in [Collecting, Confirming, Unmasking, Aggregating] {
                    advance(tx, &mut round, state, after(2)).await?;
                    assert_eq!(tx.referenced_blobs().await?, needed, "in {state}");
                }
                advance(tx, &mut round, Completed, after(3)).await?;
                assert_eq!(tx.referenced_blobs().await?, HashSet::new());
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
