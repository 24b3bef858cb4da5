//! Guarantees of the privacy ledger.

use federation::id::Attempt;
use federation::round::RoundState;

use super::sample::{advance, after, collecting, round, task, task_id};
use crate::entity::privacy_ledger::PrivacyRow;
use crate::{Result, Store, StoreError, Transaction};

/// The row for an attempt at the task's first round.
fn row(idx: u64, attempt: u32) -> PrivacyRow {
    PrivacyRow {
        attempt: round(1, 1, attempt).key,
        idx,
        published: attempt > 1,
        row: format!("{{\"seal\":\"{idx}\"}}"),
        created_at: after(attempt.into()),
    }
}

/// A task whose first round has failed twice and is retried.
async fn three_attempts(tx: &mut Transaction<'_>) -> Result<()> {
    tx.insert_task(&task(1, "one")).await?;
    for attempt in 1..=3 {
        let mut open = round(1, 1, attempt);
        tx.insert_round(&open).await?;
        if attempt < 3 {
            advance(tx, &mut open, RoundState::Cancelled, after(1)).await?;
        }
    }
    Ok(())
}

/// Rows are contiguous, each attempt has at most one, and a rejected row is rolled back.
pub async fn a_ledger_grows_at_its_end_alone(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                three_attempts(tx).await?;
                let (task, key) = (task_id(1), round(1, 1, 1).key);
                assert_eq!(tx.privacy_count(task).await?, 0);
                assert_eq!(tx.privacy_row_of(key).await?, None);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let unknown = row(0, 9);
    let of_nobody = PrivacyRow { attempt: round(2, 1, 1).key, ..row(0, 1) };
    let no_json = PrivacyRow { row: "{".to_owned(), ..row(0, 1) };
    for bad in &[row(1, 1), row(u64::MAX, 1), unknown, of_nobody, no_json] {
        refused!(store, |tx| tx.append_privacy_row(bad));
    }
    let first = &row(0, 1);
    let result: Result<()> =
        store.transact("test", |tx| Box::pin(async move { tx.append_privacy_row(first).await })).await;
    result.unwrap();
    // The index exists; the index leaves a gap; the attempt is already charged.
    for bad in &[row(0, 2), row(2, 2), row(1, 1)] {
        refused!(store, |tx| tx.append_privacy_row(bad));
    }
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (task, key) = (task_id(1), round(1, 1, 1).key);
                tx.append_privacy_row(&row(1, 3)).await?;
                tx.append_privacy_row(&row(2, 2)).await?;
                let rows = [row(0, 1), row(1, 3), row(2, 2)];
                assert_eq!(tx.privacy_count(task).await?, 3);
                assert_eq!(tx.privacy_rows(task, 0, 9).await?, rows);
                assert_eq!(tx.privacy_rows(task, 1, 1).await?, rows[1..2]);
                assert_eq!(tx.privacy_rows(task, 3, 9).await?, []);
                assert_eq!(tx.privacy_row_of(Attempt { attempt: 3, ..key }).await?.as_ref(), Some(&rows[1]));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Indices are counted per task.
pub async fn each_task_has_its_ledger(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for n in 1..=2 {
                    tx.insert_task(&task(n, &format!("task-{n}"))).await?;
                    tx.insert_round(&round(n, 1, 1)).await?;
                    let first = PrivacyRow { attempt: round(n, 1, 1).key, ..row(0, 1) };
                    tx.append_privacy_row(&first).await?;
                    assert_eq!(tx.privacy_rows(task_id(n), 0, 9).await?, [first]);
                    assert_eq!(tx.privacy_count(task_id(n)).await?, 1);
                }
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// The head is the last one stored, and is rolled back with its row.
pub async fn the_head_is_replaced_together_with_its_row(store: &Store) {
    collecting(store, 1).await;
    let task = task_id(1);
    for (seal, task) in [("a", task_id(2)), ("", task), (&*"a".repeat(129), task)] {
        refused!(store, |tx| tx.set_privacy_head(task, seal));
    }
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert_eq!(tx.privacy_head(task).await?, None);
                tx.set_privacy_head(task, "a").await?;
                tx.set_privacy_head(task, "b").await
            })
        })
        .await;
    result.unwrap();
    let failed: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.append_privacy_row(&row(0, 1)).await?;
                tx.set_privacy_head(task, "c").await?;
                Err(StoreError::fault("changed my mind"))
            })
        })
        .await;
    assert!(matches!(failed, Err(StoreError::Fault(_))));
    let found: Result<_> = store
        .read("test", |tx| Box::pin(async move { Ok((tx.privacy_head(task).await?, tx.privacy_count(task).await?)) }))
        .await;
    assert_eq!(found.unwrap(), (Some("b".to_owned()), 0));
}

/// A caller whose count is stale because another caller appended gets `Conflict`.
pub async fn of_two_who_charge_at_once_one_has_to_look_again(store: &Store) {
    let result: Result<()> = store.transact("test", |tx| Box::pin(three_attempts(tx))).await;
    result.unwrap();
    let charge = |attempt| {
        let store = store.clone();
        tokio::spawn(async move {
            let row = row(0, attempt);
            let row = &row;
            store.transact("test", |tx| Box::pin(async move { tx.append_privacy_row(row).await })).await
        })
    };
    let (one, other) = (charge(1), charge(2));
    let results: [Result<()>; 2] = [one.await.unwrap(), other.await.unwrap()];
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    assert_eq!(results.iter().filter(|result| matches!(result, Err(StoreError::Conflict(_)))).count(), 1);
    let count: Result<_> = store.read("test", |tx| Box::pin(async move { tx.privacy_count(task_id(1)).await })).await;
    assert_eq!(count.unwrap(), 1);
}
