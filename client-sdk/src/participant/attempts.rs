//! How requests that failed are spaced.

use std::time::Duration;

use super::action::Action;
use crate::clock::Now;

/// When a state that asks the coordinator for something may ask (again).
#[derive(Clone, Copy, Default)]
pub(super) struct Attempts {
    pub(super) failures: u32,
    pub(super) ready_at: Duration,
}

impl Attempts {
    /// Not before `ready_at`.
    pub(super) fn not_before(ready_at: Duration) -> Self {
        Self { failures: 0, ready_at }
    }

    /// The moment to wait for, if it has not come.
    pub(super) fn wait(&self, now: Now) -> Option<Action> {
        (now.elapsed < self.ready_at).then_some(Action::WaitUntil(self.ready_at))
    }
}
