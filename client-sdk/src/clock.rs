//! What time it is, as a value: states never read a clock, and only [`SystemClock`] asks the system.

use std::time::Duration;

use wire::Timestamp;

/// The time, on the two clocks a participant needs.
///
/// Waiting is measured by `elapsed`, which never jumps; only a certificate's dates are compared with `wall`, which may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Since some fixed moment of this process; never goes back.
    pub elapsed: Duration,
    /// By the calendar.
    pub wall: Timestamp,
}

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Now;
}

/// The system's clocks; `elapsed` is tokio's, so that a test may pause it.
#[derive(Debug)]
pub struct SystemClock {
    start: tokio::time::Instant,
}

impl SystemClock {
    /// Counts from here.
    #[must_use]
    pub fn new() -> Self {
        Self { start: tokio::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where the SDK reads the calendar")]
    fn now(&self) -> Now {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Now { elapsed: self.start.elapsed(), wall: Timestamp(0).plus(since_1970) }
    }
}
