//! Backoff between failed requests.

use std::time::Duration;

use super::action::Action;
use crate::clock::Now;

/// When a state may send its request, and how often it has failed.
#[derive(Clone, Copy, Default)]
pub(in crate::participant) struct Attempts {
    pub(in crate::participant) failures: u32,
    pub(super) ready_at: Duration,
}

impl Attempts {
    /// Attempts whose first request waits until `ready_at`.
    pub(in crate::participant) fn not_before(ready_at: Duration) -> Self {
        Self { failures: 0, ready_at }
    }

    /// The wait until the next request is allowed; `None` if it is allowed at `now`.
    pub(in crate::participant) fn wait(&self, now: Now) -> Option<Action> {
        (now.elapsed < self.ready_at).then_some(Action::WaitUntil(self.ready_at))
    }
}
