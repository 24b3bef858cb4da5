//! Writers that are in each other's way, and errors of the server at every statement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use federation::id::{Attempt, Digest, TaskId};
use store::entity::idempotency::IdempotentAnswer;
use store::{Result, Store, StoreError, TransactionFuture};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{NOW, fresh, store};

const TTL: Duration = Duration::from_secs(30);

/// Takes and releases a lease: two statements.
fn touch<'t>(tx: &'t mut store::Transaction<'_>, name: &'static str) -> TransactionFuture<'t, (), StoreError> {
    Box::pin(async move {
        let token = tx.acquire_lease(name, Uuid::nil(), NOW, TTL).await?.unwrap();
        assert!(tx.renew_lease(name, token, NOW, TTL).await?);
        Ok(())
    })
}

/// Whether a lease was taken, once.
async fn holds(store: &Store, name: &'static str) -> bool {
    let renewed: Result<bool> =
        store.transact("test", |tx| Box::pin(async move { tx.renew_lease(name, 1, NOW, TTL).await })).await;
    renewed.unwrap()
}

/// Sixteen stores, as sixteen processes have them, compete for one lease that expires again and again.
#[tokio::test(flavor = "multi_thread")]
async fn sixteen_writers_share_a_lease_that_expires() {
    let Some((cluster, database, url)) = fresh() else { return };
    let mut writers = JoinSet::new();
    for n in 1..=16_u128 {
        let store = store(&url).await;
        writers.spawn(async move {
            let mut taken = 0;
            for round in 0..6_u64 {
                // Each round begins when the lease of the one before has expired.
                let now = NOW.plus(Duration::from_secs(40 * round));
                let took: Result<Option<u64>> = store
                    .transact("lease", |tx| {
                        Box::pin(async move { tx.acquire_lease("work", Uuid::from_u128(n), now, TTL).await })
                    })
                    .await;
                taken += u32::from(took.unwrap().is_some());
            }
            taken
        });
    }
    let taken: u32 = writers.join_all().await.into_iter().sum();
    // Each of the successful callers has a token of its own.
    assert_eq!(cluster.sql(&database, "SELECT token FROM lease"), taken.to_string());
    assert!(taken >= 6);
}

/// Each of two transactions reads the rows that the other one writes: in any serial order, one of them sees the other.
#[tokio::test(flavor = "multi_thread")]
async fn write_skew_does_not_happen() {
    let Some((_, _, url)) = fresh() else { return };
    let store = store(&url).await;
    let meet = Arc::new(Barrier::new(2));
    let runs = Arc::new(AtomicU32::new(0));
    let mut both = JoinSet::new();
    for name in ["ann", "bob"] {
        let (store, meet, runs) = (store.clone(), Arc::clone(&meet), Arc::clone(&runs));
        both.spawn(async move {
            let mut first = true;
            let stored: Result<bool> = store
                .transact("first", |tx| {
                    let (meet, runs, wait) = (Arc::clone(&meet), Arc::clone(&runs), std::mem::take(&mut first));
                    Box::pin(async move {
                        runs.fetch_add(1, Ordering::Relaxed);
                        // Only the first one stores an answer; both have looked before either writes.
                        let is_first = tx.find_idempotent("ann", "k").await?.is_none()
                            && tx.find_idempotent("bob", "k").await?.is_none();
                        if wait {
                            meet.wait().await;
                        }
                        if is_first {
                            let answer =
                                IdempotentAnswer { request_sha256: Digest([1; 32]), status: 200, body: vec![] };
                            tx.insert_idempotent(name, "k", &answer, NOW).await?;
                        }
                        Ok(is_first)
                    })
                })
                .await;
            stored.unwrap()
        });
    }
    let stored = both.join_all().await;
    assert_eq!(stored.iter().filter(|stored| **stored).count(), 1, "{stored:?}");
    assert_eq!(runs.load(Ordering::Relaxed), 3, "one of them ran again");
}

/// Serialization failures, deadlocks and unavailable locks are retried, at any statement.
#[tokio::test(flavor = "multi_thread")]
async fn interference_is_tried_again_at_every_statement_and_at_the_commit() {
    for code in ["40001", "40P01", "55P03"] {
        for (event, when) in [("INSERT", ""), ("UPDATE", ""), ("INSERT", "CONSTRAINT")] {
            let Some((cluster, database, url)) = fresh() else { return };
            let store = store(&url).await;
            // A sequence is not rolled back, so the first three times fail even if the transaction is.
            let deferred = if when.is_empty() { "" } else { "DEFERRABLE INITIALLY DEFERRED" };
            cluster.sql(
                &database,
                &format!(
                    "CREATE SEQUENCE tries;
                     CREATE FUNCTION interfere() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
                         IF nextval('tries') <= 3 THEN RAISE 'in the way' USING ERRCODE = '{code}'; END IF;
                         RETURN NULL;
                     END$$;
                     CREATE {when} TRIGGER interfere AFTER {event} ON lease {deferred}
                         FOR EACH ROW EXECUTE FUNCTION interfere()"
                ),
            );
            let runs = AtomicU32::new(0);
            let done: Result<()> = store
                .transact("test", |tx| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    touch(tx, "work")
                })
                .await;
            done.unwrap();
            assert_eq!(runs.into_inner(), 4, "{code} {event} {when}");
            assert_eq!(cluster.sql(&database, "SELECT count(*) FROM lease"), "1");
        }
    }
}

/// A slow writer succeeds although faster writers of its process keep changing the same row.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_writer_is_refused_once() {
    let Some((_, _, url)) = fresh() else { return };
    let store = store(&url).await;
    let renew = async |store: &Store| {
        let renewed: Result<bool> =
            store.transact("other", |tx| Box::pin(async move { tx.renew_lease("work", 1, NOW, TTL).await })).await;
        assert!(renewed.unwrap());
    };
    let taken: Result<()> = store.transact("test", |tx| touch(tx, "work")).await;
    taken.unwrap();
    let renewals = Arc::new(AtomicU32::new(0));
    let others = tokio::spawn({
        let (store, renewals) = (store.clone(), Arc::clone(&renewals));
        async move {
            loop {
                renew(&store).await;
                renewals.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let runs = &AtomicU32::new(0);
    let renewals = &*renewals;
    let done: Result<bool> = store
        .transact("slow", |tx| {
            Box::pin(async move {
                let run = runs.fetch_add(1, Ordering::Relaxed);
                assert!(tx.find_idempotent("ann", "k").await?.is_none());
                // It has seen a state, after which others renew: the first time they do, and then they wait for it.
                let before = renewals.load(Ordering::Relaxed);
                while run == 0 && renewals.load(Ordering::Relaxed) < before + 2 {
                    tokio::task::yield_now().await;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
                tx.renew_lease("work", 1, NOW, TTL).await
            })
        })
        .await;
    assert!(done.unwrap());
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    others.abort();
}

/// Endless interference is reported as `Busy`.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_never_gets_through_is_told_that_the_database_is_busy() {
    let Some((cluster, database, url)) = fresh() else { return };
    let store = store(&url).await;
    cluster.sql(
        &database,
        "CREATE FUNCTION interfere() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN RAISE 'in the way' USING ERRCODE = '40001'; END$$;
         CREATE TRIGGER interfere BEFORE INSERT ON lease EXECUTE FUNCTION interfere()",
    );
    let runs = AtomicU32::new(0);
    let done: Result<()> = store
        .transact("test", |tx| {
            runs.fetch_add(1, Ordering::Relaxed);
            touch(tx, "work")
        })
        .await;
    assert!(matches!(done, Err(StoreError::Busy)), "{done:?}");
    assert_eq!(runs.into_inner(), 30);
    assert_eq!(cluster.sql(&database, "SELECT count(*) FROM lease"), "0");
}

/// After an error of a statement, further statements are rejected, and so is a commit, which the server would silently
/// skip.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_goes_on_after_an_error_is_a_fault() {
    let Some((_, _, url)) = fresh() else { return };
    let store = store(&url).await;
    let gone_on: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.acquire_lease("work", Uuid::nil(), NOW, TTL).await?.unwrap();
                // This task does not exist.
                let nowhere = Attempt { task: TaskId(Uuid::nil()), round: 1, attempt: 1 };
                let refused = tx.put_secret_if_absent(nowhere, "noise", b"x").await;
                assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
                Ok(())
            })
        })
        .await;
    assert!(matches!(gone_on, Err(StoreError::Fault(_))), "{gone_on:?}");
    assert!(!holds(&store, "work").await, "nothing of it was kept");
}

/// A dropped transaction rolls back and releases its locks, and its successor has a usable connection.
#[tokio::test(flavor = "multi_thread")]
async fn connections_of_dropped_transactions_are_replaced() {
    let Some((cluster, database, url)) = fresh() else { return };
    let store = store(&url).await;
    for _ in 0..20 {
        let (reached, at) = tokio::sync::oneshot::channel::<()>();
        let mut reached = Some(reached);
        let hanging = store.clone();
        let dropped = tokio::spawn(async move {
            let hung: Result<()> = hanging
                .transact("test", |tx| {
                    let reached = reached.take();
                    Box::pin(async move {
                        tx.acquire_lease("work", Uuid::nil(), NOW, TTL).await?;
                        drop(reached);
                        std::future::pending().await
                    })
                })
                .await;
            hung
        });
        at.await.unwrap_err();
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        assert!(!holds(&store, "work").await);
    }
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in %'";
    assert_eq!(cluster.sql(&database, open), "0");
}

/// The first read of this name that runs two statements, with a commit in between, starts again.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_turns_out_longer_sees_one_state() {
    let Some((_, _, url)) = fresh() else { return };
    let store = store(&url).await;
    let writer = &store.clone();
    let runs = &AtomicU32::new(0);
    let seen: Result<_> = store
        .read("two", |tx| {
            Box::pin(async move {
                let run = runs.fetch_add(1, Ordering::Relaxed);
                let before = tx.find_idempotent("ann", "k").await?.is_some();
                if run == 0 {
                    let written: Result<()> = writer
                        .transact("write", |tx| {
                            Box::pin(async move {
                                let answer =
                                    IdempotentAnswer { request_sha256: Digest([1; 32]), status: 200, body: vec![] };
                                tx.insert_idempotent("ann", "k", &answer, NOW).await
                            })
                        })
                        .await;
                    written?;
                }
                Ok((before, tx.find_idempotent("ann", "k").await?.is_some()))
            })
        })
        .await;
    assert_eq!(seen.unwrap(), (true, true));
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}
