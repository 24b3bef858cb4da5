//! Guarantees under concurrency.

use std::time::Duration;

use federation::round::RoundState;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::sample::{NOW, after, collecting, moved, participant, summary, task, task_id};
use crate::{Result, Store};

/// Concurrent read-and-write transactions are serializable.
pub async fn writers_take_turns_and_lose_nothing(store: &Store) {
    let created: Result<()> =
        store.transact("test", |tx| Box::pin(async move { tx.insert_task(&task(1, "one")).await })).await;
    created.unwrap();
    let mut writers = JoinSet::new();
    for n in 0..32 {
        let store = store.clone();
        writers.spawn(async move {
            let counted: Result<()> = store
                .transact("count", |tx| {
                    Box::pin(async move {
                        tx.insert_participant(&participant(n)).await?;
                        let row = tx.task(task_id(1)).await?.unwrap();
                        tokio::task::yield_now().await;
                        assert!(tx.task_advanced(task_id(1), row.rounds_completed + 1, 0).await?);
                        Ok(())
                    })
                })
                .await;
            counted.unwrap();
        });
    }
    writers.join_all().await;
    let row: Result<_> = store.read("test", |tx| Box::pin(async move { tx.task(task_id(1)).await })).await;
    assert_eq!(row.unwrap().unwrap().rounds_completed, 32);
}

/// One of many concurrent callers acquires the lease; after it expires, one again.
pub async fn one_of_two_takes_the_lease_and_an_expired_one_is_free(store: &Store) {
    for at in [NOW, after(100)] {
        let mut askers = JoinSet::new();
        for n in 1..=8_u128 {
            let store = store.clone();
            let holder = Uuid::from_u128((u128::from(at.0.unsigned_abs()) << 8) | n);
            askers.spawn(async move {
                let taken: Result<bool> = store
                    .transact("lease", |tx| {
                        let ttl = Duration::from_millis(100);
                        Box::pin(async move { Ok(tx.acquire_lease("work", holder, at, ttl).await?.is_some()) })
                    })
                    .await;
                taken.unwrap()
            });
        }
        let taken = askers.join_all().await;
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 1);
    }
}

/// A read does not see later commits.
pub async fn a_reader_sees_one_state(store: &Store) {
    // A database may learn from the first read of a name that it has more than one statement.
    let learned: Result<usize> = store
        .read("test", |tx| Box::pin(async move { Ok(tx.active_tasks().await?.len() + tx.active_tasks().await?.len()) }))
        .await;
    assert_eq!(learned.unwrap(), 0);
    let writer = store.clone();
    let (began, begun) = tokio::sync::oneshot::channel();
    let mut began = Some(began);
    let reader = store.clone();
    let reading = tokio::spawn(async move {
        let seen: Result<_> = reader
            .read("test", |tx| {
                let began = began.take();
                Box::pin(async move {
                    let before = tx.active_tasks().await?.len();
                    began.unwrap().send(()).unwrap();
                    // The writer gets every chance to commit in between.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    Ok((before, tx.active_tasks().await?.len()))
                })
            })
            .await;
        seen.unwrap()
    });
    begun.await.unwrap();
    let written: Result<()> =
        writer.transact("test", |tx| Box::pin(async move { tx.insert_task(&task(1, "one")).await })).await;
    written.unwrap();
    assert_eq!(reading.await.unwrap(), (0, 0));
}

/// Of two callers that decided on the same stored round, one moves it and the other gets false.
pub async fn a_round_is_moved_by_one_of_two(store: &Store) {
    let open = collecting(store, 1).await;
    let mut movers = JoinSet::new();
    for state in [RoundState::Aggregating, RoundState::Cancelled] {
        let (store, before, after) = (store.clone(), open.clone(), moved(&open, state, after(5)));
        movers.spawn(async move {
            let moved: Result<bool> = store
                .transact("move", |tx| {
                    let (before, after) = (&before, &after);
                    Box::pin(async move { tx.transition_round(before, after).await })
                })
                .await;
            moved.unwrap()
        });
    }
    let moved = movers.join_all().await;
    assert_eq!(moved.iter().filter(|moved| **moved).count(), 1);
    let history: Result<_> = store.read("test", |tx| Box::pin(async move { summary(tx, open.key).await })).await;
    assert_eq!(history.unwrap().history.len(), 3);
}
