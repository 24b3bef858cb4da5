//! Guarantees of rounds.

use std::collections::BTreeMap;
use std::time::Duration;

use federation::id::{Attempt, RoundKey};
use federation::round::{FailureReason, Round, RoundState};

use super::sample::{admitted, after, collecting, moved, round, summary, task, task_id};
use crate::entity::round::{RoundChange, RoundFilter, RoundMetric};
use crate::{Result, Store, StoreError};

/// A second round, or a second attempt, opens only after the first has ended.
pub async fn a_task_has_one_open_round(store: &Store) {
    let first = &round(1, 1, 1);
    refused!(store, |tx| tx.insert_round(first));
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(1, "one")).await?;
                tx.insert_round(first).await
            })
        })
        .await;
    result.unwrap();
    for twin in &[round(1, 1, 1), round(1, 1, 2), round(1, 2, 1)] {
        refused!(store, |tx| tx.insert_round(twin));
    }
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert_eq!(tx.open_rounds().await?.iter().map(|row| &row.round).collect::<Vec<_>>(), [first]);
                let failed = Round {
                    failure: Some(FailureReason::TooFewParticipants),
                    ..moved(first, RoundState::Failed, after(9))
                };
                assert!(tx.transition_round(first, &failed).await?);
                assert_eq!(tx.open_rounds().await?, []);
                tx.insert_round(&round(1, 1, 2)).await?;
                assert_eq!(tx.round(first.key.round_key()).await?.unwrap().round, round(1, 1, 2));
                let ended = tx.round_attempt(first.key).await?.unwrap();
                assert_eq!((ended.round, ended.ended_at), (failed, Some(after(9))));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A transition from a state that the round has left is ignored; effective ones are recorded with their counts.
pub async fn transitions_are_compare_and_swap_with_history(store: &Store) {
    let open = &collecting(store, 2).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_admitted(&[admitted(open, 1)]).await?;
                let key = open.key;
                let selecting = round(1, 1, 1);
                assert!(!tx.transition_round(&selecting, &moved(open, RoundState::Cancelled, after(5))).await?);
                assert!(!tx.rebase_round(key, RoundState::Selecting, after(2)).await?);
                assert!(tx.rebase_round(key, RoundState::Collecting, after(2)).await?);
                let summing = moved(open, RoundState::Aggregating, after(5));
                assert!(!tx.transition_round(open, &summing).await?, "its time began anew");
                let rebased = Round { state_since: after(2), ..open.clone() };
                assert!(tx.transition_round(&rebased, &summing).await?);
                assert_eq!(tx.round(key.round_key()).await?.unwrap().round, summing);
                let change = |state, ms, count| RoundChange { state, at: after(ms), count };
                let expected = [
                    change(RoundState::Selecting, 0, 0),
                    change(RoundState::Collecting, 1, 2),
                    change(RoundState::Aggregating, 5, 1),
                ];
                assert_eq!(summary(tx, key).await?.history, expected);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Metrics keep their bits; bytes add up, per state and in total.
pub async fn results_and_bytes_are_recorded(store: &Store) {
    let open = &collecting(store, 2).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let key = open.key;
                tx.insert_admitted(&[admitted(open, 1)]).await?;
                tx.insert_admitted(&[admitted(open, 2)]).await?;
                let metric = RoundMetric { name: "loss".to_owned(), value: 0.1 + 0.2, count: 1 << 60 };
                let metrics = std::slice::from_ref(&metric);
                assert!(tx.set_round_result(key, metrics, Some(1)).await?);
                assert!(!tx.set_round_result(Attempt { attempt: 2, ..key }, metrics, Some(1)).await?);
                let bad = RoundMetric { value: f64::NAN, ..metric.clone() };
                assert!(matches!(tx.set_round_result(key, &[bad], None).await, Err(StoreError::Fault(_))));
                let (sharing, nowhere) = (RoundState::Sharing, Attempt { attempt: 2, ..key });
                let sent = [(key, sharing, 5), (key, RoundState::Collecting, 6), (nowhere, RoundState::Collecting, 6)];
                tx.add_traffic(&sent, after(1)).await?;
                tx.add_traffic(&[(key, RoundState::Collecting, 3)], after(1)).await?;
                tx.add_traffic(&[(key, RoundState::Collecting, 4)], after(2)).await?;
                tx.add_traffic(&[], after(2)).await?;
                let traffic = BTreeMap::from([(RoundState::Sharing, 5), (RoundState::Collecting, 13)]);
                assert_eq!(summary(tx, key).await?.bytes_down, traffic);
                assert_eq!(summary(tx, Attempt { attempt: 2, ..key }).await?.bytes_down, BTreeMap::new());
                let row = tx.round(key.round_key()).await?.unwrap();
                assert_eq!((row.reported, row.bytes_up, row.bytes_down), (2, 80, 18));
                assert_eq!((row.metrics, row.model_version, row.ended_at), (vec![metric], Some(1), None));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// The latest attempt of each number, newest number first.
pub async fn the_latest_attempts_are_listed(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(1, "one")).await?;
                for (number, attempt) in [(1, 1), (2, 1), (2, 2), (3, 1)] {
                    let open = round(1, number, attempt);
                    tx.insert_round(&open).await?;
                    assert!(tx.transition_round(&open, &moved(&open, RoundState::Cancelled, after(1))).await?);
                }
                let numbers = |rows: Vec<crate::entity::round::RoundRow>| {
                    rows.iter().map(|row| (row.round.key.round, row.round.key.attempt)).collect::<Vec<_>>()
                };
                assert_eq!(numbers(tx.rounds(task_id(1), None, 2).await?), [(3, 1), (2, 2)]);
                assert_eq!(numbers(tx.rounds(task_id(1), Some(2), 2).await?), [(1, 1)]);
                assert_eq!(tx.round(RoundKey { task: task_id(1), number: 4 }).await?, None);
                tx.insert_round(&round(1, 4, 1)).await?;
                for (states, since, before, found) in [
                    (vec![RoundState::Cancelled], None, None, &[(3, 1), (2, 2), (1, 1)][..]),
                    (vec![RoundState::Selecting], None, None, &[(4, 1)]),
                    (vec![RoundState::Selecting, RoundState::Cancelled], None, Some(2), &[(1, 1)]),
                    (vec![RoundState::Failed], None, None, &[]),
                    (vec![], Some(round(1, 4, 1).opened_at), None, &[(4, 1), (3, 1), (2, 2), (1, 1)]),
                    (vec![], Some(round(1, 4, 1).opened_at.plus(Duration::from_millis(1))), None, &[]),
                ] {
                    let filter = RoundFilter { states, since, device: None };
                    assert_eq!(numbers(tx.rounds_where(task_id(1), &filter, before, 9).await?), found, "{filter:?}");
                }
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
