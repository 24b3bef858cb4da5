//! After the receipt: waits to be told whose inputs are in the sum, and signs it, once.

use bytes::Bytes;
use secure_agg::codec::Message as _;
use secure_agg::messages::Survivors;
use secure_agg::rejection::Refusal;
use wire::participant::{Announcement, Answer};
use zeroize::Zeroizing;

use super::core::{Core, persist};
use super::event::Event;
use super::exchange::{Ask, Heard, Say};
use super::machine::{Action, State};
use super::session::{Session, SessionError};
use super::unmask::Unmask;
use crate::clock::Now;
use crate::transport::TransportError;

/// The input was sent.
pub(super) struct Confirm {
    session: Session,
    personal: Option<Zeroizing<Vec<u8>>>,
    step: Step,
}

enum Step {
    Survivors(Ask),
    Sign(Say),
}

impl Confirm {
    pub(super) fn new(session: Session, personal: Option<Zeroizing<Vec<u8>>>) -> Self {
        Self { session, personal, step: Step::Survivors(Ask::new(Announcement::Survivors)) }
    }

    /// After a restart: says again what was signed.
    pub(super) fn resume(session: Session, personal: Option<Zeroizing<Vec<u8>>>, signed: impl Into<Bytes>) -> Self {
        Self { session, personal, step: Step::Sign(Say::new(Answer::Consistency, signed)) }
    }

    pub(super) fn action(&mut self, core: &Core, now: Now) -> Action {
        let place = self.session.place;
        match &mut self.step {
            Step::Survivors(ask) => ask.action(core, place, now),
            Step::Sign(say) => say.action(core, place, now),
        }
    }

    pub(super) fn announced(self, core: &mut Core, result: Result<Option<Bytes>, TransportError>, now: Now) -> State {
        let Self { session, personal, step } = self;
        let Step::Survivors(ask) = step else { return State::Confirm(Self { session, personal, step }) };
        let place = session.place;
        let survivors = match ask.heard(core, result, now) {
            Heard::Well(survivors) => survivors,
            Heard::Again(ask) => return State::Confirm(Self { session, personal, step: Step::Survivors(ask) }),
            Heard::Left(left) => return core.left(place, left, personal),
        };
        match sign(core, session, &survivors) {
            Ok((session, signed, survivors)) => {
                core.events.push(Event::Confirmed { place, survivors });
                let records = core.session_record(&session, personal.as_ref().map(|bytes| bytes.as_slice()));
                persist(records, State::Confirm(Self::resume(session, personal, signed)))
            }
            Err(SessionError::Refusal(Refusal::LeftOut)) => {
                core.round_over(place, "the update is not in the sum", personal)
            }
            Err(error) => core.refuse(place, &error, personal),
        }
    }

    pub(super) fn answered(self, core: &mut Core, result: Result<(), TransportError>, now: Now) -> State {
        let Self { session, personal, step } = self;
        let Step::Sign(say) = step else { return State::Confirm(Self { session, personal, step }) };
        match say.heard(core, result, now) {
            Heard::Well(()) => State::Unmask(Unmask::new(session, personal)),
            Heard::Again(say) => State::Confirm(Self { session, personal, step: Step::Sign(say) }),
            Heard::Left(left) => core.left(session.place, left, personal),
        }
    }
}

fn sign(core: &Core, session: Session, survivors: &[u8]) -> Result<(Session, Bytes, u16), SessionError> {
    let survivors = Survivors::decode(survivors)?;
    let step = session.client()?.waiting_for_survivors()?.check(&survivors, &core.key.signer()?)?;
    Ok((session.advance(&step.persist), step.send.encode().into(), survivors.survivors.len()))
}
