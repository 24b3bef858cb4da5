//! A silent server, and a network path that drops all packets: the loss of a connection goes unannounced.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use federation::id::TaskId;
use store::{Database, Result, Store, StoreConfig, StoreError, WakeEvent};
use test_servers::line::SilentLine;
use test_servers::postgres::{Cluster, Options, USER};
use uuid::Uuid;

use super::{NOW, config, server};

const TTL: Duration = Duration::from_secs(30);
/// Factor by which timeouts are shorter than usual.
const TIMES: u32 = 20;

/// A database, a line to it, and a store at the other end of the line.
async fn at_the_end_of_a_line() -> Option<(Cluster, String, SilentLine, Store)> {
    let cluster = Cluster::start(Options { tcp: true, ..Options::default() })?;
    let database = cluster.create_database();
    let line = SilentLine::before(format!("127.0.0.1:{}", cluster.port()));
    let url = format!("postgres://{USER}@127.0.0.1:{}/{database}", line.port());
    let rows = Database::Postgres(server(&url).impatient(TIMES));
    let store = Store::open(StoreConfig { database: rows, connections: 4, ..config(&url) }).await.unwrap();
    Some((cluster, database, line, store))
}

async fn take(store: &Store, name: &'static str) -> Result<bool> {
    let lease = store.transact("take", |tx| Box::pin(tx.acquire_lease(name, Uuid::nil(), NOW, TTL)));
    lease.await.map(|token| token.is_some())
}

async fn look(store: &Store) -> Result<()> {
    store.read("look", |tx| Box::pin(async move { tx.active_tasks().await.map(drop) })).await
}

fn is_unreachable<T>(result: &Result<T>) -> bool {
    matches!(result, Err(StoreError::Unreachable(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_asked_of_a_silent_server_ends_in_time_and_goes_on_afterwards() {
    let Some((_cluster, _, line, store)) = at_the_end_of_a_line().await else { return };
    assert!(take(&store, "before").await.unwrap());
    // One is in the middle of a transaction.
    let between = store.transact("between", |tx| {
        let line = &line;
        Box::pin(async move {
            tx.acquire_lease("between", Uuid::nil(), NOW, TTL).await?;
            line.fall_silent();
            tx.acquire_lease("between too", Uuid::nil(), NOW, TTL).await
        })
    });
    let between = between.await;
    assert!(is_unreachable(&between), "{between:?}");

    // More wait than there are connections.
    let asked = (0..12).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            match n % 4 {
                0 => is_unreachable(&take(&store, "during").await),
                1 => is_unreachable(&look(&store).await),
                2 => is_unreachable(&store.now().await),
                _ => is_unreachable(&store.check().await),
            }
        })
    });
    for (n, told) in asked.collect::<Vec<_>>().into_iter().enumerate() {
        assert!(told.await.unwrap(), "call {n}");
    }

    line.carry_again();
    assert!(take(&store, "after").await.unwrap());
    look(&store).await.unwrap();
    // The server waits for the transaction for a while, and then undoes it.
    let mut tries = 0;
    while !take(&store, "between").await.is_ok_and(|is_free| is_free) {
        tries += 1;
        assert!(tries < 5, "its lock is never given back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_stopped_in_the_middle_of_a_transaction_holds_no_lock_and_begins_again() {
    let Some((cluster, database, _line, store)) = at_the_end_of_a_line().await else { return };
    let runs = AtomicU32::new(0);
    let done = store.transact("stopped", |tx| {
        let (run, cluster, database) = (runs.fetch_add(1, Ordering::Relaxed), &cluster, &database);
        Box::pin(async move {
            tx.acquire_lease("stopped", Uuid::nil(), NOW, TTL).await?;
            if run == 0 {
                tokio::time::sleep(Duration::from_secs(120) / TIMES + Duration::from_secs(1)).await;
                let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
                assert_eq!(cluster.sql(database, open), "0");
            }
            tx.acquire_lease("stopped too", Uuid::nil(), NOW, TTL).await
        })
    });
    assert!(done.await.unwrap().is_some());
    assert_eq!(runs.into_inner(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_alone_fell_silent_is_made_anew() {
    let Some((_cluster, _, line, store)) = at_the_end_of_a_line().await else { return };
    assert!(take(&store, "before").await.unwrap());
    // A middlebox forgets the idle connection: it drops the next bytes, and a new connection works.
    line.fall_silent();
    let taken = {
        let store = store.clone();
        tokio::spawn(async move { take(&store, "after").await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    line.carry_again();
    assert!(taken.await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_into_silence_is_not_repeated() {
    let Some((cluster, database, line, store)) = at_the_end_of_a_line().await else { return };
    let lost = store.transact("work", |tx| {
        let line = &line;
        Box::pin(async move {
            tx.acquire_lease("work", Uuid::nil(), NOW, TTL).await?;
            line.fall_silent();
            Ok::<_, StoreError>(())
        })
    });
    let Err(StoreError::Fault(cause)) = lost.await else { panic!("it may have been committed") };
    assert!(cause.to_string().contains("during the commit of work"), "{cause}");
    assert_eq!(cluster.sql(&database, "SELECT count(*) FROM lease"), "0", "as nobody here can know");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_hears_nothing_of_a_silent_server_notices_and_hears_again() {
    let Some((cluster, database, line, far)) = at_the_end_of_a_line().await else { return };
    let near = super::store(&cluster.url(&database)).await;
    let mut heard = far.wake().subscribe();
    let mut next = async |limit: u64| tokio::time::timeout(Duration::from_secs(limit), heard.next()).await;
    let task = |n| WakeEvent::Task(TaskId(Uuid::from_u128(n)));
    // It listens from the first of these on that it hears.
    let mut tries = 0;
    near.wake().publish(task(1));
    while next(1).await != Ok(Some(task(1))) {
        tries += 1;
        assert!(tries < 30, "it does not hear");
        near.wake().publish(task(1));
    }
    line.fall_silent();
    near.wake().publish(task(2));
    let heard_next = loop {
        match next(10).await {
            // Published more than once.
            Ok(Some(event)) if event == task(1) => {}
            other => break other,
        }
    };
    assert_eq!(heard_next, Ok(Some(WakeEvent::Lost)), "it looks for itself");
    line.carry_again();
    // From the first of these that it hears on, it listens again.
    let mut tries = 0;
    while next(1).await != Ok(Some(task(3))) {
        tries += 1;
        assert!(tries < 30, "it does not hear again");
        near.wake().publish(task(3));
    }
}
