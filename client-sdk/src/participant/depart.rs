//! Says that a session was left for good without an answer, once nothing is left that could answer: with enough of these the others
//! may give an input from the same model anew. A courtesy to them: tried a few times.

use bytes::Bytes;
use wire::Attempt;

use super::action::{Action, Request};
use super::attempts::Attempts;
use super::core::Core;
use super::state::{CheckIn, Depart, State};
use crate::clock::Now;
use crate::transport::TransportError;
use crate::transport::retry::{Verdict, judge};

/// How often it is tried.
const MOST_ATTEMPTS: u32 = 5;

impl Depart {
    pub(super) fn new((place, statement): (Attempt, Bytes), then: CheckIn) -> Self {
        Self { place, statement, attempts: Attempts::default(), then }
    }

    pub(super) fn action(&self, core: &Core, now: Now) -> Action {
        self.attempts.wait(now).unwrap_or_else(|| {
            let (place, body) = (self.place, self.statement.clone());
            core.send(|participant| Request::AbortStatement { place, participant, body })
        })
    }

    pub(super) fn answered(self, core: &mut Core, result: Result<(), TransportError>, now: Now) -> State {
        if let Err(error) = result {
            let verdict = judge(&error);
            if let Some(end) = core.fatal(&error, verdict) {
                return State::Finished(Err(end));
            }
            if let Verdict::Again(after) = verdict
                && self.attempts.failures + 1 < MOST_ATTEMPTS
            {
                let attempts = self.attempts.again(core, now, "say that the session was left", &error, after);
                return State::Depart(Self { attempts, ..self });
            }
        }
        State::CheckIn(self.then)
    }
}
