//! Sends the masked input, the same bytes each time, until there is a receipt or no hope.
//!
//! This state alone may be entered from the journal: an app that was killed here goes on here.

use wire::participant::{AbandonReason, Receipt};

use super::check_in::CheckIn;
use super::event::Event;
use super::machine::{Action, Attempts, Core, Ended, Record, Request, State};
use super::persist::Persist;
use super::snapshot::{self, Pending, RoundRecord};
use crate::clock::Now;
use crate::transport::retry::{Verdict, judge};
use crate::transport::{TransportError, Upload};

/// An update waits for its receipt.
pub(super) struct Sending {
    pending: Pending,
    attempts: Attempts,
}

impl Sending {
    pub(super) fn new(pending: Pending) -> Self {
        Self { pending, attempts: Attempts::default() }
    }

    pub(super) fn action(&self, core: &Core, now: Now) -> Action {
        if let Some(wait) = self.attempts.wait(now) {
            return wait;
        }
        let Some(identity) = &core.identity else {
            return Action::Finished(Err(super::error::ParticipantError::NotEnrolled));
        };
        let Pending { place, sha256, body, .. } = &self.pending;
        let participant = identity.certified.participant;
        let (place, sha256, body) = (*place, *sha256, body.clone());
        Action::Send(Request::Upload(Upload { place, participant, sha256, body, signed: None }))
    }

    pub(super) fn uploaded(self, core: &mut Core, result: Result<Receipt, TransportError>, now: Now) -> State {
        let Pending { place, sha256, .. } = self.pending;
        let error = match result {
            Ok(receipt) if receipt.sha256 == sha256 => {
                core.events.push(Event::Uploaded { place, bytes: self.pending.body.len() as u64, sha256 });
                return self.done(core, State::CheckIn(CheckIn::default()));
            }
            Ok(_) => TransportError::Protocol("the receipt is for other bytes".to_owned()),
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
            Verdict::RoundOver => {
                core.round_over(place, &error.to_string());
                self.done(core, State::CheckIn(CheckIn::default()))
            }
            _ => {
                core.events.push(Event::TrainingFailed { place, error: error.to_string() });
                let next = core.give_up(place, AbandonReason::Refused);
                self.done(core, next)
            }
        }
    }

    /// Lets the personal tensors take effect and remembers that this place was answered, in this order: if it dies in
    /// between, the update is sent again, gets the same receipt, and all is repeated.
    fn done(self, core: &mut Core, next: State) -> State {
        let Pending { place, personal, .. } = self.pending;
        if !matches!(core.ended, Some((ended, _)) if ended == place) {
            core.ended = Some((place, Ended::Answered));
        }
        let round = match RoundRecord::Done(place).encode() {
            Ok(bytes) => Record { name: snapshot::ROUND.to_owned(), bytes },
            Err(error) => return State::Finished(Err(error.into())),
        };
        let personal = personal.map(|bytes| Record { name: snapshot::personal(place.task), bytes });
        State::Persist(Persist::new(personal.into_iter().chain([round]).collect(), next))
    }
}
