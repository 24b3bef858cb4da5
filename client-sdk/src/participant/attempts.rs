//! Backoff between failed requests.

use std::time::Duration;

use wire::participant::RefusalCode;

use super::action::Action;
use super::core::Core;
use super::round_end::AbandonCause;
use crate::clock::Now;

/// When a state may send its request, and how often it has failed.
#[derive(Clone, Copy, Default)]
pub(super) struct Attempts {
    pub(super) failures: u32,
    pub(super) ready_at: Duration,
}

impl Attempts {
    /// No request before `ready_at`.
    pub(super) fn not_before(ready_at: Duration) -> Self {
        Self { failures: 0, ready_at }
    }

    /// The wait until the next request is allowed; `None` if it is allowed at `now`.
    pub(super) fn wait(&self, now: Now) -> Option<Action> {
        (now.elapsed < self.ready_at).then_some(Action::WaitUntil(self.ready_at))
    }

    /// After a place was given up: what the app's own limits do not allow now, they will not allow in a second, so the participant
    /// asks ever later, until it takes part again.
    pub(super) fn after_giving_up(core: &mut Core, AbandonCause { refusal, .. }: AbandonCause, now: Now) -> Self {
        let stays = matches!(
            refusal,
            Some(RefusalCode::Policy | RefusalCode::Privacy | RefusalCode::TooLarge | RefusalCode::App)
        );
        if !stays {
            return Self::default();
        }
        core.refused_in_a_row = core.refused_in_a_row.saturating_add(1);
        let retry = &core.settings.retry;
        let pause = retry.delay(core.refused_in_a_row, retry.most_in_vain, None, &mut core.rng);
        Self::not_before(now.elapsed.saturating_add(pause))
    }
}
