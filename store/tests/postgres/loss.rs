//! Connections that are lost, because the server is killed or closes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use store::{Result, Store, StoreError};
use test_servers::postgres::{Cluster, Options};
use uuid::Uuid;

use super::{NOW, fresh, store};

const TTL: Duration = Duration::from_secs(30);

async fn take(store: &Store, name: &'static str, between: impl Fn(u32) + Sync) -> Result<bool> {
    let runs = AtomicU32::new(0);
    store
        .transact("take", |tx| {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            let between = &between;
            Box::pin(async move {
                let token = tx.acquire_lease(name, Uuid::nil(), NOW, TTL).await?.unwrap();
                between(run);
                tx.renew_lease(name, token, NOW, TTL).await
            })
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_in_the_middle_loses_nothing_that_was_committed() {
    let Some(cluster) = Cluster::start(Options { fsync: true, ..Options::default() }).map(Arc::new) else { return };
    let store = store(&cluster.url(&cluster.create_database())).await;
    assert!(take(&store, "before", |_| ()).await.unwrap());
    // In the middle of a transaction, which then runs again on the server that came back.
    let crashing = Arc::clone(&cluster);
    let taken = take(&store, "during", move |run| {
        if run == 0 {
            crashing.crash();
            crashing.restart();
        }
    });
    assert!(taken.await.unwrap());
    // Between two: every idle connection is dead.
    cluster.crash();
    cluster.restart();
    assert!(take(&store, "after", |_| ()).await.unwrap());
    for name in ["before", "during", "after"] {
        let held: Result<bool> =
            store.transact("test", |tx| Box::pin(async move { tx.release_lease(name, 1).await })).await;
        assert!(held.unwrap(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_told_to_go_comes_back() {
    let Some((cluster, database, url)) = fresh() else { return };
    let store = store(&url).await;
    let others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert!(
        take(&store, "work", |run| {
            if run == 0 {
                assert_ne!(cluster.sql(&database, others), "0");
            }
        })
        .await
        .unwrap()
    );
    assert_eq!(cluster.sql(&database, "SELECT count(*) FROM lease"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_not_repeated() {
    let Some((cluster, database, url)) = fresh() else { return };
    let store = store(&url).await;
    // The server cuts the connection while it commits.
    cluster.sql(
        &database,
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END$$;
         CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON lease DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION cut()",
    );
    let runs = AtomicU32::new(0);
    let lost = take(&store, "work", |_| _ = runs.fetch_add(1, Ordering::Relaxed)).await;
    let Err(StoreError::Fault(cause)) = lost else { panic!("{lost:?}") };
    assert!(cause.to_string().contains("during the commit of take"), "{cause}");
    assert_eq!(runs.into_inner(), 1, "it may have been committed");
}
