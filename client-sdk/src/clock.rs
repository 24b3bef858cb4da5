//! Time as a value: only [`SystemClock`] reads the system clock, states receive the time.

use std::time::Duration;

use wire::Timestamp;

/// The time on the participant's two clocks.
///
/// Waiting uses `elapsed`, which is monotonic. Only certificate dates are compared with `wall`, which may jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Since some fixed moment of this process; monotonic.
    pub elapsed: Duration,
    /// Time of the wall clock, which may jump.
    pub wall: Timestamp,
}

/// A source of time.
pub trait Clock: Send + Sync {
    fn now(&self) -> Now;
}

/// The system's clocks; `elapsed` is tokio's, so that a test can pause it.
#[derive(Debug)]
pub struct SystemClock {
    start: tokio::time::Instant,
}

impl SystemClock {
    /// Starts `elapsed` at zero.
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
    #[expect(clippy::disallowed_methods, reason = "the only place where the SDK reads the wall clock")]
    fn now(&self) -> Now {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Now { elapsed: self.start.elapsed(), wall: Timestamp(0).plus(since_1970) }
    }
}
