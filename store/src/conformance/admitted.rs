//! Guarantees of admitted inputs.

use super::sample::{admitted, after, collecting, digest, participant_id};
use crate::entity::admitted::Admitted;
use crate::{Result, Store, StoreError};

/// The first bytes stay; a repetition is distinguished from other bytes; the round counts each participant once.
pub async fn an_input_counts_once(store: &Store) {
    let open = &collecting(store, 2).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let first = admitted(open, 1);
                assert_eq!(tx.insert_admitted(&[first]).await?, 1);
                let later = Admitted { accepted_at: after(9), ..first };
                assert_eq!(tx.insert_admitted(&[later]).await?, 0);
                let other = Admitted { sha256: digest(9), ..later };
                assert_eq!(tx.insert_admitted(&[other]).await?, 0);
                assert_eq!(tx.admitted(open.key, participant_id(1)).await?, Some(first));
                assert_eq!(tx.admitted(open.key, participant_id(2)).await?, None);
                let row = tx.round(open.key.round_key()).await?.unwrap();
                assert_eq!((row.reported, row.bytes_up), (1, 40));
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let stranger = &admitted(open, 9);
    refused!(store, |tx| tx.insert_admitted(&[*stranger]));
}

/// A version's record names the records below of the inputs in its sum: each once, in order, and the first that was named.
pub async fn records_below_belong_to_folded_inputs(store: &Store) {
    let open = &collecting(store, 4).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let key = open.key;
                let below = |participant, sha256| (key, participant_id(participant), digest(sha256));
                for n in 1..=4 {
                    tx.insert_admitted(&[admitted(open, n)]).await?;
                }
                assert_eq!(tx.insert_records_below(&[below(1, 8), below(2, 7), below(3, 8), below(4, 6)]).await?, 4);
                assert_eq!(tx.insert_records_below(&[below(1, 5)]).await?, 0, "it is final");
                assert_eq!(tx.records_below(key, 9).await?, []);
                tx.mark_folded(key, &[1, 2, 3].map(participant_id)).await?;
                assert_eq!(tx.records_below(key, 9).await?, [7, 8].map(digest));
                assert_eq!(tx.records_below(key, 1).await?, [digest(7)]);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let stranger = &[(open.key, participant_id(9), digest(1))];
    refused!(store, |tx| tx.insert_records_below(stranger));
}

/// An input that was folded before or lacks admission is rejected: it would count twice, or not at all.
pub async fn inputs_are_folded_once_and_in_order(store: &Store) {
    let open = &collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let key = open.key;
                for n in [3, 1, 2] {
                    tx.insert_admitted(&[admitted(open, n)]).await?;
                }
                assert_eq!(tx.unfolded(key, 2).await?, [1, 2].map(|n| admitted(open, n)));
                assert_eq!(tx.folded(key).await?, []);
                tx.mark_folded(key, &[participant_id(2), participant_id(1)]).await?;
                assert_eq!(tx.unfolded(key, 9).await?, [admitted(open, 3)]);
                assert_eq!(tx.unfolded_count(key).await?, 1);
                assert_eq!(tx.folded(key).await?, [1, 2].map(participant_id));
                assert!(tx.admitted(key, participant_id(1)).await?.unwrap().folded);
                tx.mark_folded(key, &[]).await
            })
        })
        .await;
    result.unwrap();
    for again in [participant_id(1), participant_id(9)] {
        let result: Result<()> = store
            .transact("test", |tx| Box::pin(async move { tx.mark_folded(open.key, &[participant_id(3), again]).await }))
            .await;
        assert!(matches!(result, Err(StoreError::Conflict(_))));
    }
    let left: Result<u32> = store.read("test", |tx| Box::pin(async move { tx.unfolded_count(open.key).await })).await;
    assert_eq!(left.unwrap(), 1);
}

/// A score belongs to an input; a score without an input is rejected.
pub async fn inputs_are_given_scores(store: &Store) {
    let open = &collecting(store, 2).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let key = open.key;
                tx.insert_admitted(&[admitted(open, 1)]).await?;
                tx.insert_admitted(&[admitted(open, 2)]).await?;
                assert_eq!(tx.anomaly_score(key, participant_id(1)).await?, None);
                tx.set_anomaly_scores(key, &[(participant_id(2), 17.25), (participant_id(1), 0.0)]).await?;
                assert_eq!(tx.anomaly_score(key, participant_id(1)).await?, Some(0.0));
                assert_eq!(tx.anomaly_score(key, participant_id(2)).await?, Some(17.25));
                assert_eq!(tx.anomaly_score(key, participant_id(3)).await?, None);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    for score in [(participant_id(3), 1.0), (participant_id(1), f64::NAN), (participant_id(1), -1.0)] {
        let score = &[score];
        let result: Result<()> =
            store.transact("test", |tx| Box::pin(async move { tx.set_anomaly_scores(open.key, score).await })).await;
        assert!(matches!(result, Err(StoreError::Conflict(_))), "{score:?}: {result:?}");
    }
}
