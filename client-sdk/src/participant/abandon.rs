//! Tells the coordinator not to wait for this participant. Best effort: after a few attempts the round's deadline has
//! the same effect.

use wire::Attempt;

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
            Ok(None) => State::CheckIn(CheckIn { attempts: Attempts::after_giving_up(core, self.why, now) }),
            Err(end) => State::Finished(Err(end)),
        }
    }
}
