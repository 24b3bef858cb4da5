//! How requests that failed are spaced.

use std::time::Duration;

use super::action::Action;
use super::core::Core;
use super::event::Event;
use crate::clock::Now;

/// When a state that asks the coordinator for something may ask (again).
#[derive(Clone, Copy, Default)]
pub(super) struct Attempts {
    pub(super) failures: u32,
    ready_at: Duration,
}

impl Attempts {
    /// Not before `ready_at`.
    pub(super) fn not_before(ready_at: Duration) -> Self {
        Self { failures: 0, ready_at }
    }

    /// One more failure: wait longer.
    pub(super) fn again(
        self,
        core: &mut Core,
        now: Now,
        what: &'static str,
        error: &dyn std::fmt::Display,
        retry_after: Option<Duration>,
    ) -> Self {
        self.at_most(core.settings.retry.most, core, now, (what, error, retry_after))
    }

    /// One more check-in that failed. Outside of rounds everybody asks who is enrolled, so that the wait may be longer; in one it
    /// must fit into the time of a phase, whatever the coordinator said before.
    pub(super) fn check_in_again(
        self,
        core: &mut Core,
        now: Now,
        error: &dyn std::fmt::Display,
        retry_after: Option<Duration>,
    ) -> Self {
        self.at_most(core.retry_most, core, now, ("check in", error, retry_after))
    }

    /// One more answer with which nothing can be done, and that will stay the same for a while.
    pub(super) fn in_vain(self, core: &mut Core, now: Now, what: &'static str, error: &dyn std::fmt::Display) -> Self {
        self.at_most(core.settings.retry.most_in_vain, core, now, (what, error, None))
    }

    fn at_most(
        mut self,
        most: Duration,
        core: &mut Core,
        now: Now,
        (what, error, retry_after): (&'static str, &dyn std::fmt::Display, Option<Duration>),
    ) -> Self {
        self.failures = self.failures.saturating_add(1);
        let after = core.settings.retry.delay(self.failures, most, retry_after, &mut core.rng);
        self.ready_at = now.elapsed.saturating_add(after);
        core.events.push(Event::Retry { what, error: error.to_string(), after });
        self
    }

    /// The moment to wait for, if it has not come.
    pub(super) fn wait(&self, now: Now) -> Option<Action> {
        (now.elapsed < self.ready_at).then_some(Action::WaitUntil(self.ready_at))
    }
}
