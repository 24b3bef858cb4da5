//! After the receipt: waits to be told whose inputs are in the sum, and signs it, once.

use bytes::Bytes;
use secure_agg::codec::Message as _;
use secure_agg::messages::Survivors;
use secure_agg::rejection::Refusal;
use wire::Attempt;
use wire::participant::{Announcement, Answer};

use super::action::Action;
use super::core::{Core, persist};
use super::event::Event;
use super::exchange::Heard;
use super::session::{Session, SessionError};
use super::snapshot::AtHome;
use super::state::{Ask, Confirm, ConfirmStep, Say, State, Unmask};
use crate::clock::Now;
use crate::transport::TransportError;

impl Confirm {
    pub(super) fn new(session: Session, at_home: AtHome) -> Self {
        Self { session, at_home, step: ConfirmStep::Survivors(Ask::new(Announcement::Survivors)) }
    }

    /// After a restart: says again what was signed.
    pub(super) fn resume(session: Session, at_home: AtHome, signed: impl Into<Bytes>) -> Self {
        Self { session, at_home, step: ConfirmStep::Sign(Say::new(Answer::Consistency, signed)) }
    }

    /// Whether the signature is on its way.
    pub(super) fn is_signing(&self) -> bool {
        matches!(self.step, ConfirmStep::Sign(_))
    }

    pub(super) fn place(&self) -> Attempt {
        self.session.place
    }

    pub(super) fn action(&mut self, core: &Core, now: Now) -> Action {
        let place = self.session.place;
        match &mut self.step {
            ConfirmStep::Survivors(ask) => ask.action(core, place, now),
            ConfirmStep::Sign(say) => say.action(core, place, now),
        }
    }

    pub(super) fn announced(self, core: &mut Core, result: Result<Option<Bytes>, TransportError>, now: Now) -> State {
        let Self { session, at_home, step } = self;
        let ConfirmStep::Survivors(ask) = step else { return State::Confirm(Self { session, at_home, step }) };
        let place = session.place;
        let survivors = match ask.heard(core, result, now) {
            Heard::Well(survivors) => survivors,
            Heard::Again(ask) => return State::Confirm(Self { session, at_home, step: ConfirmStep::Survivors(ask) }),
            Heard::Left(left) => return core.left(place, left, Some(at_home)),
        };
        match sign(core, session, &survivors) {
            Ok((session, signed, survivors)) => {
                core.events.push(Event::Confirmed { place, survivors });
                let records = core.session_record(&session, Some(&at_home));
                persist(records, State::Confirm(Self::resume(session, at_home, signed)))
            }
            Err(SessionError::Refusal(Refusal::LeftOut)) => {
                core.round_over(place, "the update is not in the sum", Some(at_home.not_sent()))
            }
            Err(error) => core.refuse(place, &error, Some(at_home)),
        }
    }

    pub(super) fn answered(self, core: &mut Core, result: Result<(), TransportError>, now: Now) -> State {
        let Self { session, at_home, step } = self;
        let ConfirmStep::Sign(say) = step else { return State::Confirm(Self { session, at_home, step }) };
        match say.heard(core, result, now) {
            Heard::Well(()) => State::Unmask(Unmask::new(session, at_home)),
            Heard::Again(say) => State::Confirm(Self { session, at_home, step: ConfirmStep::Sign(say) }),
            Heard::Left(left) => core.left(session.place, left, Some(at_home)),
        }
    }
}

fn sign(core: &Core, session: Session, survivors: &[u8]) -> Result<(Session, Bytes, u16), SessionError> {
    let survivors = Survivors::decode(survivors)?;
    let step = session.client()?.waiting_for_survivors()?.check(&survivors, &core.key.signer()?)?;
    Ok((session.advance(&step.persist), step.send.encode().into(), survivors.survivors.len()))
}
