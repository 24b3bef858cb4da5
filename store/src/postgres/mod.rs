//! Rows in PostgreSQL. Transactions that change rows are serializable, as if one ran after the other; those that
//! interfere fail and run again after a pause. Reads see one state without waiting.

mod bus;
mod dialect;
mod error;
mod patience;
mod pool;
mod schema;
mod server;
mod session;
mod turns;
mod values;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use federation::time::Timestamp;
use sqlx::Executor as _;
use uuid::Uuid;

use self::bus::Notifications;
use self::pool::Pool;
pub use self::server::PostgresServer;
use self::session::{Longer, Session};
use self::turns::Turns;
use crate::driver::{Backend, Driver, Mode, Turn};
use crate::error::Result;
use crate::transaction::NOW;
use crate::wake::bus::Bus;

/// Number of attempts before the caller gets the last error: up to a quarter of a minute.
const MAX_ATTEMPTS: u32 = 30;
/// Bound of the pause after the first attempt; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A database on a server.
pub(crate) struct PostgresBackend {
    pool: Arc<Pool>,
    longer: Longer,
    turns: Turns,
    seed: u64,
    pauses: AtomicU64,
}

impl PostgresBackend {
    /// Connects, and migrates the database.
    pub(crate) async fn open(server: &PostgresServer, connections: u32) -> Result<Self> {
        let pool = Pool::new(server.options(), connections, server.patience());
        let mut loan = pool.lend().await?;
        schema::migrate(&mut loan.connection).await?;
        loan.keep();
        Ok(Self::over(pool, server))
    }

    /// Connects to a database of this program's schema. Migrations are left out.
    pub(crate) async fn open_to_read(server: &PostgresServer, connections: u32) -> Result<Self> {
        let pool = Pool::new(server.options(), connections, server.patience());
        let mut loan = pool.lend().await?;
        schema::must_be_newest(&mut loan.connection).await?;
        loan.keep();
        Ok(Self::over(pool, server))
    }

    fn over(pool: Arc<Pool>, server: &PostgresServer) -> Self {
        Self {
            pool,
            longer: Longer::default(),
            turns: Turns::default(),
            seed: server.seed(),
            pauses: AtomicU64::new(0),
        }
    }

    /// Distinguishes this process from others that use this database.
    pub(crate) fn process(&self) -> Uuid {
        Uuid::from_u64_pair(self.seed, 0)
    }

    /// A way to every process that uses this database.
    pub(crate) fn bus(&self, server: &PostgresServer) -> Arc<dyn Bus> {
        Arc::new(Notifications { pool: Arc::clone(&self.pool), options: server.options() })
    }

    /// Runs a statement by itself.
    async fn run(&self, statement: &'static str) -> Result<()> {
        self.pool.with(async |connection| connection.execute(statement).await.map(drop)).await
    }
}

/// A pause after `attempt` attempts, uniform up to a bound that doubles, so that colliding transactions diverge.
fn pause(seed: u64, number: u64, attempt: u32) -> Duration {
    let bound = FIRST_PAUSE.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(LONGEST_PAUSE);
    // SplitMix64 suffices: a pause is public.
    let mut word = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^= word >> 31;
    let share = u32::try_from(word >> 32).unwrap_or_default();
    bound.mul_f64(f64::from(share) / f64::from(u32::MAX))
}

#[async_trait]
impl Backend for PostgresBackend {
    async fn turn(&self, name: &'static str, mode: Mode, was_refused: bool) -> Option<Turn> {
        self.turns.take(name, mode, was_refused).await
    }

    async fn begin(&self, name: &'static str, mode: Mode) -> Result<Box<dyn Driver>> {
        Ok(Box::new(Session::begin(self.pool.lend().await?, name, mode, &self.longer).await?))
    }

    fn pause(&self, attempt: u32, lost_for: Option<Duration>) -> Option<Duration> {
        let number = self.pauses.fetch_add(1, Ordering::Relaxed);
        let may_come_back = lost_for.is_none_or(|lost| lost < self.pool.patience.loss);
        (may_come_back && attempt < MAX_ATTEMPTS).then(|| pause(self.seed, number, attempt))
    }

    async fn now(&self) -> Result<Option<Timestamp>> {
        let now = sqlx::query_scalar(&*dialect::spell(NOW)?.sql);
        let now = self.pool.with(async move |connection| now.fetch_one(connection).await).await?;
        Ok(Some(Timestamp(now)))
    }

    /// The server keeps its log, and its archive and standbys have copies: rows may contain only sealed secrets.
    async fn empty_log(&self) -> Result<()> {
        Ok(())
    }

    /// Whether the server answers; it has checksums and tools of its own for its files.
    async fn check(&self) -> Result<()> {
        self.run("SELECT 1").await
    }

    /// The server checks references itself; its pages are checked by its own tools.
    async fn problems(&self) -> Result<Vec<String>> {
        self.check().await.map(|()| Vec::new())
    }

    /// Makes the server report a full disk when a large row is inserted.
    #[cfg(feature = "conformance")]
    async fn limit_pages(&self, pages: u32) -> Result<()> {
        self.run(if pages == 1 {
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
                 $$BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END$$;
             CREATE TRIGGER full_disk BEFORE INSERT ON idempotency_key EXECUTE FUNCTION full_disk()"
        } else {
            "DROP FUNCTION full_disk CASCADE"
        })
        .await
    }

    #[cfg(feature = "conformance")]
    async fn revert_schema(&self) -> Result<()> {
        schema::revert(&mut self.pool.lend().await?.connection).await
    }

    #[cfg(feature = "conformance")]
    async fn migrate_schema(&self) -> Result<()> {
        schema::migrate(&mut self.pool.lend().await?.connection).await
    }

    #[cfg(feature = "conformance")]
    fn explain(&self) -> &'static str {
        "EXPLAIN"
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use test_servers::postgres::{Cluster, Options};

    use super::*;
    use crate::driver::{Extent, Query};
    use crate::error::StoreError;

    async fn add_one(rows: &PostgresBackend, attempts: &AtomicU32) {
        let mut was_refused = false;
        loop {
            let turn = rows.turn("add one", Mode::Write, was_refused).await;
            attempts.fetch_add(1, Ordering::Relaxed);
            let done = async {
                let mut driver = rows.begin("add one", Mode::Write).await?;
                let add = Query::new("INSERT INTO burst SELECT count(*) FROM burst", &())?;
                driver.change(add, Extent::Few).await?;
                driver.commit().await
            };
            match done.await {
                Ok(()) => return,
                Err(StoreError::Busy) => was_refused = true,
                Err(error) => panic!("{error}"),
            }
            drop(turn);
        }
    }

    /// Writers that count the same rows and add one: of those that run at once, the server lets one commit.
    #[tokio::test]
    async fn writers_that_met_write_one_after_the_other() {
        const BURSTS: u32 = 20;
        let Some(cluster) = Cluster::start(Options::default()) else { return };
        let database = cluster.create_database();
        let server = PostgresServer::parse(&cluster.url(&database)).unwrap();
        let rows = Arc::new(PostgresBackend::open(&server, 8).await.unwrap());
        cluster.sql(&database, "CREATE TABLE burst (n bigint)");
        let attempts = Arc::new(AtomicU32::new(0));
        for _ in 0..BURSTS {
            let writers = (0..6).map(|_| {
                let (rows, attempts) = (Arc::clone(&rows), Arc::clone(&attempts));
                tokio::spawn(async move { add_one(&rows, &attempts).await })
            });
            for writer in writers.collect::<Vec<_>>() {
                writer.await.unwrap();
            }
        }
        assert_eq!(cluster.sql(&database, "SELECT count(*), count(DISTINCT n) FROM burst"), "120|120");
        let log = std::fs::read_to_string(cluster.folder().join("log")).unwrap();
        let refused = log.matches("could not serialize access").count();
        assert!(refused <= 10, "the first burst alone: {refused} of {} attempts", attempts.load(Ordering::Relaxed));
    }

    #[test]
    fn pauses_grow_to_a_bound_and_differ_between_processes() {
        for attempt in 1..MAX_ATTEMPTS {
            let bound = Duration::from_millis(2 << (attempt - 1).min(16)).min(LONGEST_PAUSE);
            let drawn: Vec<_> = (0..200).map(|number| pause(7, number, attempt)).collect();
            assert!(drawn.iter().all(|pause| *pause <= bound), "attempt {attempt}");
            assert!(drawn.iter().any(|pause| *pause > bound / 2) && drawn.iter().any(|pause| *pause < bound / 2));
        }
        assert_ne!(pause(1, 0, 9), pause(2, 0, 9));
    }
}
