//! The time of coordinators that share a database: the database's.
//!
//! A deadline that one process set is judged by others, and a lease that one holds is wanted by others. So none goes by its own
//! clock: each asks the database for its time, and adds what a monotonic clock says has passed since. Clocks of processes
//! then differ by less than an answer of the database takes, and do not jump when a machine's clock is set. A machine that was
//! suspended finds out in the first transaction in which it would end or take anything: see [`Clock::is_off`].

use std::sync::Arc;
use std::time::Duration;

use federation::time::{Clock, Timestamp};
use store::{Result, Store};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::guarded::Guarded;

/// How often the database is asked. Monotonic clocks drift by less than a millisecond meanwhile; after a suspension of the
/// machine, what judges without asking is late for no longer.
const ASKED_EVERY: Duration = Duration::from_secs(10);
/// An answer that took longer says too little: another is asked for.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// How often it is asked at the start, until an answer is quick.
const TRIES: u32 = 5;
/// From this difference on a machine's clock is wrong: certificates, and requests to an S3 store, are judged by it.
const DIFFERENCE_MAX_MS: i64 = 1_000;

/// Tells the time of a database, from its last answer and what has passed on this machine since.
pub(super) struct DatabaseClock {
    /// This machine's clock, which is compared with the database's and never goes into a row.
    own: Arc<dyn Clock>,
    reading: Guarded<Reading>,
}

#[derive(Clone, Copy)]
struct Reading {
    database: Timestamp,
    /// Halfway between the question and the answer, in the monotonic time of this process.
    taken: Instant,
    /// How long the answer took: it is wrong by half of this at most.
    wait: Duration,
    /// How much this machine's clock is ahead, in milliseconds.
    ahead_ms: i64,
}

impl DatabaseClock {
    /// That of a store which others may use as well; none of one whose rows are this process's alone.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn of(store: &Store, own: Arc<dyn Clock>) -> Result<Option<Arc<Self>>> {
        let mut best: Option<Reading> = None;
        for _ in 0..TRIES {
            let Some(reading) = read(store, &*own).await? else { return Ok(None) };
            if best.is_none_or(|best| reading.wait < best.wait) {
                best = Some(reading);
            }
            if reading.wait <= WAIT_MAX {
                break;
            }
        }
        Ok(best.map(|reading| {
            tell(reading, 0);
            Arc::new(Self { own, reading: Guarded::new(reading) })
        }))
    }

    /// Asks again and again, until stopped. While the database is away the last answer holds.
    pub(super) async fn follow(&self, store: &Store, stopped: &CancellationToken) {
        while stopped.run_until_cancelled(tokio::time::sleep(ASKED_EVERY)).await.is_some() {
            match read(store, &*self.own).await {
                Ok(Some(reading)) if reading.wait <= WAIT_MAX => {
                    let before = self.reading.with(|known| std::mem::replace(known, reading));
                    tell(reading, before.ahead_ms);
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "the database does not tell its time"),
            }
        }
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        let reading = *self.reading.lock();
        reading.database.plus(reading.taken.elapsed())
    }

    /// Whether the database told a time that the clock did not show between the question and now. A monotonic clock stands
    /// still while its machine is suspended.
    fn is_off(&self, asked: Timestamp, told: Timestamp) -> bool {
        let (now, taken) = (self.now(), Instant::now());
        if (asked.0 - DIFFERENCE_MAX_MS..=now.0 + DIFFERENCE_MAX_MS).contains(&told.0) {
            return false;
        }
        let ahead_ms = self.own.now().0.saturating_sub(told.0);
        let before = self.reading.with(|known| {
            std::mem::replace(known, Reading { database: told, taken, wait: now.since(asked), ahead_ms })
        });
        tracing::warn!(
            behind_ms = told.0.saturating_sub(now.0),
            "the clock of this process was off, as after a suspension; it is set by the database's"
        );
        tell(*self.reading.lock(), before.ahead_ms);
        true
    }
}

async fn read(store: &Store, own: &dyn Clock) -> Result<Option<Reading>> {
    let (asked, ours) = (Instant::now(), own.now());
    let Some(database) = store.now().await? else { return Ok(None) };
    let wait = asked.elapsed();
    // It looked at its clock somewhere in between.
    let halfway = wait / 2;
    let ahead_ms = ours.plus(halfway).0.saturating_sub(database.0);
    Ok(Some(Reading { database, taken: asked + halfway, wait, ahead_ms }))
}

fn tell(reading: Reading, before_ms: i64) {
    let is_wrong = |ahead_ms: i64| ahead_ms.abs() > DIFFERENCE_MAX_MS;
    #[expect(clippy::cast_precision_loss, reason = "a difference of clocks")]
    metrics::gauge!("tributary_clock_ahead_seconds").set(reading.ahead_ms as f64 / 1000.0);
    if is_wrong(reading.ahead_ms) && !is_wrong(before_ms) {
        let ahead_ms = reading.ahead_ms;
        tracing::warn!(
            ahead_ms,
            "this machine's clock is {ahead_ms} ms ahead of the database's, by which rounds and leases go: mend its time \
             synchronization, certificates are judged by it"
        );
    }
}

#[cfg(test)]
mod tests {
    use federation::time::MockClock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_goes_on_from_the_databases_whatever_is_done_to_the_machines_clock() {
        let own = Arc::new(MockClock::new(Timestamp(9_000_000)));
        let reading = Reading {
            database: Timestamp(1_000_000),
            taken: Instant::now(),
            wait: Duration::ZERO,
            ahead_ms: 8_000_000,
        };
        let clock = DatabaseClock { own: own.clone(), reading: Guarded::new(reading) };
        assert_eq!(clock.now(), Timestamp(1_000_000));
        own.set(Timestamp(5));
        tokio::time::advance(Duration::from_millis(1_500)).await;
        assert_eq!(clock.now(), Timestamp(1_001_500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_stood_still_is_set_by_what_the_database_tells() {
        let own: Arc<dyn Clock> = Arc::new(MockClock::new(Timestamp(1_000_000)));
        let reading =
            Reading { database: Timestamp(1_000_000), taken: Instant::now(), wait: Duration::ZERO, ahead_ms: 0 };
        let clock = DatabaseClock { own, reading: Guarded::new(reading) };
        let asked = clock.now();
        tokio::time::advance(Duration::from_secs(9)).await;
        for told in [1_000_000 - 1_000, 1_004_000, 1_009_000 + 1_000] {
            assert!(!clock.is_off(asked, Timestamp(told)), "{told}");
        }
        assert_eq!(clock.now(), Timestamp(1_009_000), "an answer that took nine seconds sets no clock");
        for told in [1_600_000, 1_599_000 - 1_001] {
            let asked = clock.now();
            assert!(clock.is_off(asked, Timestamp(told)), "{told}");
            assert_eq!(clock.now(), Timestamp(told));
        }
    }

    #[tokio::test]
    async fn who_is_alone_with_its_rows_has_a_clock_of_its_own() {
        let own: Arc<dyn Clock> = Arc::new(MockClock::new(Timestamp(0)));
        let store = Store::open(store::StoreConfig {
            database: store::Database::SqliteMemory,
            blobs: store::Blobs::Memory,
            connections: 1,
            clock: Arc::clone(&own),
        });
        assert!(DatabaseClock::of(&store.await.unwrap(), own).await.unwrap().is_none());
    }
}
