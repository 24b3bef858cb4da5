//! Time as a value. Nothing in the pure crates reads a clock; whoever needs the time is given a [`Clock`].

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
    /// `self + duration`, saturating at the end of time.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long ago `earlier` was; zero if it lies in the future.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// The time now. It may jump, either way: rules must survive that.
    fn now(&self) -> Timestamp;
}

/// A clock that stands still until a test moves it.
#[cfg(any(test, feature = "test-util"))]
#[derive(Debug)]
pub struct MockClock(std::sync::atomic::AtomicI64);

#[cfg(any(test, feature = "test-util"))]
impl MockClock {
    /// Starts at `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self(std::sync::atomic::AtomicI64::new(now.0))
    }

    /// Moves on by `duration`.
    pub fn advance(&self, duration: Duration) {
        self.set(self.now().plus(duration));
    }

    /// Jumps, also backwards.
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
