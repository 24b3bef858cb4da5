//! PostgreSQL passes the suite. Tests of a server alone: interference, lost connections, attackers on the path, and
//! processes that start concurrently.

mod interference;
mod loss;
mod schema;
mod silence;
mod time;
mod tls;

use std::sync::Arc;

use federation::time::MockClock;
use store::conformance::NOW;
use store::{Blobs, Database, PostgresServer, Store, StoreConfig};
use test_servers::postgres::Cluster;

fn server(url: &str) -> PostgresServer {
    // Seeds differ between stores, as they do between processes.
    static SEEDS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    PostgresServer::parse(url).unwrap().with_seed(SEEDS.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

fn config(url: &str) -> StoreConfig {
    StoreConfig {
        database: Database::Postgres(server(url)),
        blobs: Blobs::Memory,
        connections: 8,
        clock: Arc::new(MockClock::new(NOW)),
    }
}

async fn store(url: &str) -> Store {
    Store::open(config(url)).await.unwrap()
}

/// An empty database of the shared cluster, and its address.
fn fresh() -> Option<(&'static Cluster, String, String)> {
    let cluster = Cluster::shared()?;
    let database = cluster.create_database();
    let url = cluster.url(&database);
    Some((cluster, database, url))
}

mod suite {
    use store::Store;
    use test_servers::postgres::Cluster;

    /// A database that goes with its test.
    struct Used(&'static Cluster, String);

    impl Drop for Used {
        fn drop(&mut self) {
            self.0.drop_database(&self.1);
        }
    }

    async fn open() -> Option<(Store, Used)> {
        let (cluster, database, url) = super::fresh()?;
        Some((super::store(&url).await, Used(cluster, database)))
    }

    store::conformance_tests!(open);
}
