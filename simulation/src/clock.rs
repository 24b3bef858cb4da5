//! Virtual time: one clock for the coordinator and for every participant, which only the driver of a run advances.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client_sdk::clock::Now;
use federation::time::{Clock, Timestamp};

/// Start of every simulation: Monday, 16 June 2025, 00:00 UTC.
const START: Timestamp = Timestamp(1_750_032_000_000);

/// Microseconds since the simulation began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub(crate) u64);

impl Moment {
    /// The moment `later` after this one; saturates.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Time since `earlier`; zero if that is in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Time since the simulation began.
    pub fn elapsed(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// `elapsed` after the beginning, rounded up to a microsecond.
    pub fn at(elapsed: Duration) -> Self {
        Self(u64::try_from(elapsed.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX))
    }

    /// The moment of `timestamp`; the beginning for earlier ones.
    pub fn of(timestamp: Timestamp) -> Self {
        Self::default().plus(timestamp.since(START))
    }
}

/// A clock that stands still until it is advanced.
#[derive(Debug, Default)]
pub struct VirtualClock(AtomicU64);

impl VirtualClock {
    /// The simulated time since the start.
    pub fn moment(&self) -> Moment {
        Moment(self.0.load(Ordering::SeqCst))
    }

    /// Advances the clock; an earlier moment is ignored.
    pub fn advance(&self, to: Moment) {
        self.0.fetch_max(to.0, Ordering::SeqCst);
    }

    /// The current time, in the SDK's form.
    pub fn participant_now(&self) -> Now {
        Self::at(self.moment())
    }

    /// A moment in the SDK's form.
    pub fn at(moment: Moment) -> Now {
        Now { elapsed: moment.elapsed(), wall: START.plus(moment.elapsed()) }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        START.plus(self.moment().elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_the_same_time_and_it_never_goes_back() {
        let clock = VirtualClock::default();
        clock.advance(Moment::default().plus(Duration::from_millis(2500)));
        clock.advance(Moment::default());
        assert_eq!(clock.now().since(START), Duration::from_millis(2500));
        assert_eq!(clock.participant_now(), Now { elapsed: Duration::from_millis(2500), wall: clock.now() });
        assert_eq!(Moment::of(clock.now()), clock.moment());
        assert_eq!(Moment::at(Duration::from_nanos(1001)), Moment(2));
    }
}
