//! Tells the coordinator not to wait for this participant. Best effort: after a few attempts the round's deadline has
//! the same effect.

use wire::Attempt;
use wire::participant::RefusalCode;

use super::action::Action;
use super::attempts::Attempts;
use super::core::Core;
use super::event::Outcome;
use super::exchange::once_more;
use super::round_end::AbandonCause;
use super::state::{Abandon, CheckIn, State};
use crate::clock::Now;
use crate::transport::{Abandonment, Request, TransportError};

/// Maximum number of attempts.
const MOST_ATTEMPTS: u32 = 3;

impl Abandon {
    pub(super) fn new(place: Attempt, why: AbandonCause) -> Self {
        Self { place, why, attempts: Attempts::default() }
    }

    pub(super) fn action(&self, core: &Core, now: Now) -> Action {
        if let Some(wait) = self.attempts.wait(now) {
            return wait;
        }
        let (place, AbandonCause { reason, refusal }) = (self.place, self.why);
        core.send(|participant| Request::Abandon(Abandonment { place, participant, reason, refusal }))
    }

    pub(super) fn abandoned(self, core: &mut Core, result: Result<(), TransportError>, now: Now) -> State {
        match once_more(core, result, self.attempts, MOST_ATTEMPTS, "give up the round", now) {
            Ok(Some(attempts)) => State::Abandon(Self { attempts, ..self }),
            Ok(None) if core.stopping => State::Finished(Ok(Outcome::Stopped)),
            Ok(None) => State::CheckIn(CheckIn { attempts: after_giving_up(core, self.why, now) }),
            Err(end) => State::Finished(Err(end)),
        }
    }
}

/// When to check in after a place was given up: what the app's own limits do not allow now, they will not allow in a second, so the
/// participant asks ever later, until it takes part again.
fn after_giving_up(core: &mut Core, AbandonCause { refusal, .. }: AbandonCause, now: Now) -> Attempts {
    let stays =
        matches!(refusal, Some(RefusalCode::Policy | RefusalCode::Privacy | RefusalCode::TooLarge | RefusalCode::App));
    if !stays {
        return Attempts::default();
    }
    core.refused_in_a_row = core.refused_in_a_row.saturating_add(1);
    let retry = &core.settings.retry;
    let pause = retry.delay(core.refused_in_a_row, retry.most_in_vain, None, &mut core.rng);
    Attempts::not_before(now.elapsed.saturating_add(pause))
}
