//! The database's clock, shared by its coordinators.
//!
//! Coordinators share deadlines and leases, so each uses the database's time plus the elapsed monotonic time. Their clocks differ by less
//! than a round trip to the database, and do not jump when a machine's clock is set. A suspended machine notices in its first transaction
//! that would end or take anything: see [`Clock::is_off`].

use std::sync::Arc;
use std::time::Duration;

use federation::time::{Clock, Timestamp};
use listener::PoisonFreeMutex;
use store::{Result, Store};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval between readings of the database's time. Monotonic clocks drift by less than a millisecond in this interval. After a
/// suspension, decisions without a transaction are late for at most this long.
const ASKED_EVERY: Duration = Duration::from_secs(10);
/// Maximum round trip of a reading; slower ones are too imprecise and repeated.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// Maximum number of readings at the start, until one is fast enough.
const TRIES: u32 = 5;
/// Difference at which a machine's clock is wrong; certificates and S3 requests depend on it.
const DIFFERENCE_MAX_MS: i64 = 1_000;

/// A database's time, extrapolated from the last reading by the monotonic clock.
pub(super) struct DatabaseClock {
    /// This machine's clock. It is only compared with the database's, and never stored in a row.
    own: Arc<dyn Clock>,
    reading: PoisonFreeMutex<Reading>,
}

#[derive(Clone, Copy)]
struct Reading {
    database: Timestamp,
    /// Midpoint of the reading in this process's monotonic time.
    taken: Instant,
    /// Round trip of the reading; the error is at most half of it.
    wait: Duration,
    /// How far this machine's clock is ahead, in milliseconds.
    ahead_ms: i64,
}

impl DatabaseClock {
    /// The clock of a shared store; `None` if only this process uses the rows.
    ///
    /// # Errors
    /// Errors of the store.
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
            Arc::new(Self { own, reading: PoisonFreeMutex::new(reading) })
        }))
    }

    /// Reads the time periodically until stopped. While the database is unavailable, the last reading remains valid.
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

    /// Whether the database's time lies outside the clock's range between the start of the query and now. A monotonic clock stops while its
    /// machine is suspended.
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
    // The database read its clock at some point in between.
    let halfway = wait / 2;
    let ahead_ms = ours.plus(halfway).0.saturating_sub(database.0);
    Ok(Some(Reading { database, taken: asked + halfway, wait, ahead_ms }))
}

fn tell(reading: Reading, before_ms: i64) {
    let is_wrong = |ahead_ms: i64| ahead_ms.abs() > DIFFERENCE_MAX_MS;
    #[expect(clippy::cast_precision_loss, reason = "a difference of clocks")]
    metrics::gauge!("tributary_clock_ahead_seconds").set(reading.ahead_ms as f64 / 1000.0);
    if is_wrong(reading.ahead_ms) && !is_wrong(before_ms) {
        tracing::warn!(
            ahead_ms = reading.ahead_ms,
            "this machine's clock is {} the database's, by which rounds and leases go: mend its time synchronization, certificates \
             are judged by it",
            difference(reading.ahead_ms)
        );
    }
}

/// Describes the difference between two clocks.
fn difference(ahead_ms: i64) -> String {
    let direction = if ahead_ms < 0 { "behind" } else { "ahead of" };
    format!("{} ms {direction}", ahead_ms.unsigned_abs())
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
        let clock = DatabaseClock { own: own.clone(), reading: PoisonFreeMutex::new(reading) };
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
        let clock = DatabaseClock { own, reading: PoisonFreeMutex::new(reading) };
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

    #[test]
    fn a_slow_clock_is_behind() {
        assert_eq!(difference(-90_000), "90000 ms behind");
        assert_eq!(difference(90_000), "90000 ms ahead of");
        assert_eq!(difference(i64::MIN), "9223372036854775808 ms behind");
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
