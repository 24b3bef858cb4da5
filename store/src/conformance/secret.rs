//! Guarantees of secrets.

use federation::id::Attempt;

use super::sample::{task, task_id};
use crate::{Result, Store};

const ROUND: u32 = 3;

fn key(round: u32, attempt: u32) -> Attempt {
    Attempt { task: task_id(1), round, attempt }
}

/// Later callers, even with another secret, get the first one stored.
pub async fn the_first_secret_stays_until_it_is_forgotten(store: &Store) {
    refused!(store, |tx| tx.put_secret_if_absent(key(ROUND, 1), "noise", b"one"));
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(1, "one")).await?;
                assert_eq!(tx.secret(key(ROUND, 1), "noise").await?, None);
                assert!(!tx.forget_secret(key(ROUND, 1), "noise").await?);
                assert_eq!(tx.put_secret_if_absent(key(ROUND, 1), "noise", b"one").await?, b"one");
                assert_eq!(tx.put_secret_if_absent(key(ROUND, 1), "noise", b"other").await?, b"one");
                assert_eq!(tx.secret(key(ROUND, 1), "noise").await?.as_deref(), Some(b"one".as_slice()));
                // Another task's, round's, attempt's or purpose's is another secret; 0 and 0 are the whole task's.
                let others = [(ROUND, 2, "noise"), (4, 1, "noise"), (ROUND, 1, "rounding"), (0, 0, "noise")];
                for (number, attempt, purpose) in others {
                    assert_eq!(tx.secret(key(number, attempt), purpose).await?, None);
                    let sealed = purpose.repeat(attempt as usize + 1).into_bytes();
                    assert_eq!(tx.put_secret_if_absent(key(number, attempt), purpose, &sealed).await?, sealed);
                }
                let elsewhere = Attempt { task: task_id(2), ..key(ROUND, 1) };
                assert_eq!(tx.secret(elsewhere, "noise").await?, None);
                assert!(tx.forget_secret(key(ROUND, 1), "noise").await?);
                assert!(!tx.forget_secret(key(ROUND, 1), "noise").await?);
                assert_eq!(tx.secret(key(ROUND, 1), "noise").await?, None);
                for (number, attempt, purpose) in others {
                    assert!(tx.secret(key(number, attempt), purpose).await?.is_some());
                }
                assert_eq!(tx.put_secret_if_absent(key(ROUND, 1), "noise", b"new").await?, b"new");
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// An empty or oversized secret is rejected and rolled back.
pub async fn a_secret_is_bounded(store: &Store) {
    let task = &task(1, "one");
    let result: Result<()> = store.transact("test", |tx| Box::pin(async move { tx.insert_task(task).await })).await;
    result.unwrap();
    let (long, longest) = (&*"p".repeat(65), &*"p".repeat(64));
    for (purpose, bytes) in [("", 1), (long, 1), ("noise", 0), ("noise", 4097)] {
        let sealed = &vec![1; bytes];
        refused!(store, |tx| tx.put_secret_if_absent(key(0, 0), purpose, sealed));
        let found: Result<_> =
            store.read("test", |tx| Box::pin(async move { tx.secret(key(0, 0), purpose).await })).await;
        assert_eq!(found.unwrap(), None);
    }
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let largest = vec![1; 4096];
                assert_eq!(tx.put_secret_if_absent(key(0, 0), longest, &largest).await?, largest);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Stores `bytes` as the task's secrets, one of maximum length and many that share their pages. All files must be free
/// of these bytes after [`forget`]. The task has number 1, and is created if missing.
pub async fn remember(store: &Store, bytes: &[u8]) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                if tx.task(task_id(1)).await?.is_none() {
                    tx.insert_task(&task(1, "one")).await?;
                }
                let (long, short) = bytes.split_at(bytes.len().min(4096));
                for (n, piece) in short.chunks(140).chain([long]).enumerate() {
                    tx.put_secret_if_absent(key(0, 0), &n.to_string(), piece).await?;
                }
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Deletes everything that [`remember`] stored.
pub async fn forget(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let mut forgotten = 0_u32;
                while tx.forget_secret(key(0, 0), &forgotten.to_string()).await? {
                    forgotten += 1;
                }
                assert_ne!(forgotten, 0);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
