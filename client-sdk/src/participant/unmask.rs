//! The last word: once enough others have signed the same survivors, reveals one share of every dealer, which opens their sum.

use bytes::Bytes;
use secure_agg::codec::Message as _;
use secure_agg::messages::Agreement;
use wire::participant::{Announcement, Answer};

use super::action::Action;
use super::core::{Core, persist};
use super::event::Event;
use super::exchange::Heard;
use super::session::{Session, SessionError};
use super::snapshot::AtHome;
use super::state::{Ask, Say, State, Unmask, UnmaskStep};
use crate::clock::Now;
use crate::transport::TransportError;

impl Unmask {
    pub(super) fn new(session: Session, at_home: AtHome) -> Self {
        Self { session, at_home, step: UnmaskStep::Agreement(Ask::new(Announcement::Agreement)) }
    }

    /// After a restart: says again what was revealed.
    pub(super) fn resume(session: Session, at_home: AtHome, shares: impl Into<Bytes>) -> Self {
        Self { session, at_home, step: UnmaskStep::Reveal(Say::new(Answer::UnmaskShares, shares)) }
    }

    pub(super) fn action(&mut self, core: &Core, now: Now) -> Action {
        let place = self.session.place;
        match &mut self.step {
            UnmaskStep::Agreement(ask) => ask.action(core, place, now),
            UnmaskStep::Reveal(say) => say.action(core, place, now),
        }
    }

    pub(super) fn announced(self, core: &mut Core, result: Result<Option<Bytes>, TransportError>, now: Now) -> State {
        let Self { session, at_home, step } = self;
        let UnmaskStep::Agreement(ask) = step else { return State::Unmask(Self { session, at_home, step }) };
        let place = session.place;
        let agreement = match ask.heard(core, result, now) {
            Heard::Well(agreement) => agreement,
            Heard::Again(ask) => return State::Unmask(Self { session, at_home, step: UnmaskStep::Agreement(ask) }),
            Heard::Left(left) => return core.left(place, left, Some(at_home)),
        };
        match reveal(core, session, &agreement) {
            Ok((session, shares, signers)) => {
                core.events.push(Event::Unmasked { place, signers });
                let records = core.session_record(&session, Some(&at_home));
                persist(records, State::Unmask(Self::resume(session, at_home, shares)))
            }
            Err(error) => core.refuse(place, &error, Some(at_home)),
        }
    }

    pub(super) fn answered(self, core: &mut Core, result: Result<(), TransportError>, now: Now) -> State {
        let Self { session, at_home, step } = self;
        let UnmaskStep::Reveal(say) = step else { return State::Unmask(Self { session, at_home, step }) };
        match say.heard(core, result, now) {
            Heard::Well(()) => core.answered(session.place, Some(at_home)),
            Heard::Again(say) => State::Unmask(Self { session, at_home, step: UnmaskStep::Reveal(say) }),
            Heard::Left(left) => core.left(session.place, left, Some(at_home)),
        }
    }
}

fn reveal(core: &Core, session: Session, agreement: &[u8]) -> Result<(Session, Bytes, usize), SessionError> {
    let agreement = Agreement::decode(agreement)?;
    let step = session.client()?.waiting_for_agreement()?.unmask(&agreement, &core.key.signer()?)?;
    Ok((session.advance(&step.persist), step.send.encode().into(), agreement.signatures.len()))
}
