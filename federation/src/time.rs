//! Time as a value. Pure crates take the time as an argument; other code takes a [`Clock`].

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = i64))]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// `self + duration`, saturating.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Time since `earlier`; zero if that lies in the future.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A duration in seconds: the number nearest to its decimal form. `Duration::as_secs_f64` returns 1.5350000000000001 for 1,535 ms.
#[must_use]
pub fn seconds(duration: Duration) -> f64 {
    duration.div_duration_f64(Duration::from_secs(1))
}

/// UTC with second precision, in RFC 3339 format (2026-11-23T01:05:04Z).
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(1000);
        let (year, month, day) = date(seconds.div_euclid(DAY_S));
        let time = seconds.rem_euclid(DAY_S);
        let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

const DAY_S: i64 = 24 * 3600;

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar (H. Hinnant, "chrono-compatible low-level
/// date algorithms", `civil_from_days`).
fn date(day: i64) -> (i64, i64, i64) {
    /// Days of 400 years, after which the calendar repeats.
    const ERA: i64 = 146_097;
    // Years begin in March here, so that the leap day comes last.
    let day = day + 719_468;
    let of_era = day.rem_euclid(ERA);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + 400 * day.div_euclid(ERA) + i64::from(month <= 2);
    (year, month, of_year - (153 * from_march + 2) / 5 + 1)
}

/// A source of time.
pub trait Clock: Send + Sync {
    /// The current time. It may jump either way; rules must tolerate that.
    fn now(&self) -> Timestamp;

    /// Compares this clock with a shared database's time, given the request's time by this clock, and adjusts it. Returns whether it was
    /// off; decisions based on the old time must then be repeated. Always `false` for clocks without a database.
    fn is_off(&self, _asked: Timestamp, _told: Timestamp) -> bool {
        false
    }
}

/// A clock that moves only when a test moves it.
#[cfg(any(test, feature = "test-util"))]
#[derive(Debug)]
pub struct MockClock(std::sync::atomic::AtomicI64);

#[cfg(any(test, feature = "test-util"))]
impl MockClock {
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self(std::sync::atomic::AtomicI64::new(now.0))
    }

    pub fn advance(&self, duration: Duration) {
        self.set(self.now().plus(duration));
    }

    /// Sets the time, which may move backwards.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, std::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(any(test, feature = "test-util"))]
impl Clock for MockClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_nearest_to_their_decimal_form() {
        for ms in 0..100_000_u32 {
            assert_eq!(
                seconds(Duration::from_millis(ms.into())).to_bits(),
                (f64::from(ms) / 1000.0).to_bits(),
                "{ms} ms"
            );
        }
    }

    #[test]
    fn people_are_told_a_date() {
        for (at, told) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59Z"),
            (1_750_000_000_500, "2025-06-15T15:06:40Z"),
        ] {
            assert_eq!(Timestamp(at).to_string(), told);
        }
        // The extremes are outside of every calendar but must still print.
        assert!(Timestamp(i64::MAX).to_string().ends_with('Z') && Timestamp(i64::MIN).to_string().ends_with('Z'));
    }
}
