//! Sends the masked input, the same bytes each time, until there is a receipt or a permanent error.
//!
//! This state may be entered from the journal: an app that was killed here resumes here.

use bytes::Bytes;
use wire::Attempt;
use wire::participant::{Receipt, RefusalCode};

use super::action::Action;
use super::attempts::Attempts;
use super::core::Core;
use super::event::Event;
use super::snapshot::Pending;
use super::state::{Opening, OpeningPhase, Sending, State};
use crate::clock::Now;
use crate::transport::retry::{Verdict, judge};
use crate::transport::{Request, TransportError, Upload};

impl Sending {
    pub(super) fn new(pending: Pending, signed: Option<Bytes>) -> Self {
        Self { pending, signed, attempts: Attempts::default() }
    }

    /// The attempt whose sum is opened after the update is accepted, if it has a session.
    pub(super) fn session_place(&self) -> Option<Attempt> {
        self.pending.session.as_ref().map(|session| session.place)
    }

    pub(super) fn action(&self, core: &Core, now: Now) -> Action {
        if let Some(wait) = self.attempts.wait(now) {
            return wait;
        }
        let Pending { place, sha256, ref body, .. } = self.pending;
        let (body, signed) = (body.clone(), self.signed.clone());
        core.send(|participant| Request::Upload(Upload { place, participant, sha256, body, signed }))
    }

    pub(super) fn uploaded(self, core: &mut Core, result: Result<Receipt, TransportError>, now: Now) -> State {
        let Pending { place, sha256, .. } = self.pending;
        let error = match result {
            Ok(receipt) if receipt.sha256 == sha256 => return self.accepted(core),
            Ok(_) => TransportError::protocol("the receipt is for other bytes"),
            Err(error) => error,
        };
        let verdict = judge(&error);
        if let Some(end) = core.fatal(&error, verdict) {
            return State::Finished(Err(end));
        }
        match verdict {
            Verdict::Again(after) => {
                let attempts = self.attempts.again(core, now, "send the update", &error, after);
                State::Upload(Self { attempts, ..self })
            }
            Verdict::RoundOver => core.round_over(place, &error.to_string(), Some(self.pending.local_state.not_sent())),
            Verdict::Revoked | Verdict::Expired | Verdict::Refused => {
                core.events.push(Event::TrainingFailed { place, error: error.to_string() });
                core.give_up(place, RefusalCode::NotTaken, Some(self.pending.local_state.not_sent()))
            }
        }
    }

    /// Without secure aggregation the round is complete; with it, the sum has yet to be opened.
    fn accepted(self, core: &mut Core) -> State {
        let Pending { place, sha256, body, local_state, session } = self.pending;
        core.events.push(Event::Uploaded { place, bytes: body.len() as u64, sha256 });
        match session {
            Some(session) => State::Opening(Opening::new(OpeningPhase::Confirm, session, local_state)),
            None => core.answered(place, Some(local_state)),
        }
    }
}
