//! States that this participant left a session without answering, once it can no longer answer: enough of these
//! statements let the other members send another input from the same model. Best effort: a few attempts.

use bytes::Bytes;
use wire::Attempt;

use super::action::Action;
use super::attempts::Attempts;
use super::core::Core;
use super::exchange::once_more;
use super::state::{CheckIn, Depart, State};
use crate::clock::Now;
use crate::transport::{Request, TransportError};

/// Maximum number of attempts.
const MOST_ATTEMPTS: u32 = 5;

impl Depart {
    pub(super) fn new(place: Attempt, statement: Bytes, then: CheckIn) -> Self {
        Self { place, statement, attempts: Attempts::default(), then }
    }

    pub(super) fn action(&self, core: &Core, now: Now) -> Action {
        self.attempts.wait(now).unwrap_or_else(|| {
            let (place, body) = (self.place, self.statement.clone());
            core.send(|participant| Request::AbortStatement { place, participant, body })
        })
    }

    pub(super) fn answered(self, core: &mut Core, result: Result<(), TransportError>, now: Now) -> State {
        match once_more(core, result, self.attempts, MOST_ATTEMPTS, "say that the session was left", now) {
            Ok(Some(attempts)) => State::Depart(Self { attempts, ..self }),
            Ok(None) => State::CheckIn(self.then),
            Err(end) => State::Finished(Err(end)),
        }
    }
}
