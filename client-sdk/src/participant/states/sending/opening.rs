//! After the receipt: waits for the set of included participants and signs it, once. When enough others have signed
//! the same set, reveals one share of every dealer, which opens their sum.

use bytes::Bytes;
use secure_agg::codec::Message as _;
use secure_agg::messages::{Agreement, Survivors};
use secure_agg::rejection::Refusal;
use wire::Attempt;
use wire::participant::{Announcement, Answer};

use super::exchange::Reply;
use crate::clock::Now;
use crate::participant::api::event::Event;
use crate::participant::journal::session::{Session, SessionError};
use crate::participant::journal::snapshot::LocalState;
use crate::participant::states::action::Action;
use crate::participant::states::core::{Core, persist};
use crate::participant::states::state::{AnnouncementPoll, Exchange, MessageUpload, Opening, OpeningPhase, State};
use crate::transport::TransportError;

impl Opening {
    /// Starts a phase by waiting for its announcement.
    pub(in crate::participant) fn new(phase: OpeningPhase, session: Session, local_state: LocalState) -> Self {
        let what = match phase {
            OpeningPhase::Confirm => Announcement::Survivors,
            OpeningPhase::Unmask => Announcement::Agreement,
        };
        Self { phase, session, local_state, step: Exchange::Poll(AnnouncementPoll::new(what)) }
    }

    /// Sends the signature or the shares, also after a restart.
    pub(in crate::participant) fn resume(
        phase: OpeningPhase,
        session: Session,
        local_state: LocalState,
        body: impl Into<Bytes>,
    ) -> Self {
        let what = match phase {
            OpeningPhase::Confirm => Answer::Consistency,
            OpeningPhase::Unmask => Answer::UnmaskShares,
        };
        Self { phase, session, local_state, step: Exchange::Upload(MessageUpload::new(what, body)) }
    }

    /// Whether the signature is being sent.
    pub(in crate::participant) fn is_signing(&self) -> bool {
        self.phase == OpeningPhase::Confirm && self.step.is_uploading()
    }

    pub(in crate::participant) fn place(&self) -> Attempt {
        self.session.place
    }

    pub(in crate::participant) fn action(&mut self, core: &Core, now: Now) -> Action {
        self.step.action(core, self.session.place, now)
    }

    pub(in crate::participant) fn announced(
        self,
        core: &mut Core,
        result: Result<Option<Bytes>, TransportError>,
        now: Now,
    ) -> State {
        let Exchange::Poll(poll) = self.step else { return State::Opening(self) };
        let Self { phase, session, local_state, .. } = self;
        let place = session.place;
        let message = match poll.receive(core, result, now) {
            Reply::Answered(message) => message,
            Reply::Again(poll) => {
                return State::Opening(Self { phase, session, local_state, step: Exchange::Poll(poll) });
            }
            Reply::Failed(error) => return core.exchange_failed(place, error, Some(local_state)),
        };
        let answer = match phase {
            OpeningPhase::Confirm => sign(core, session, &message),
            OpeningPhase::Unmask => reveal(core, session, &message),
        };
        match answer {
            Ok((session, body, event)) => {
                core.events.push(event);
                let mut records = core.session_record(&session, Some(&local_state));
                if phase == OpeningPhase::Confirm && core.shown.has_key() {
                    // Records the signed set: the provenance record of the resulting version must agree with it.
                    records = records.and_then(|mut records| {
                        records.push(core.shown_record()?);
                        Ok(records)
                    });
                }
                persist(records, State::Opening(Self::resume(phase, session, local_state, body)))
            }
            Err(SessionError::Refusal(Refusal::LeftOut)) => {
                core.round_over(place, "the update is not in the sum", Some(local_state.not_sent()))
            }
            Err(error) => core.refuse(place, &error, Some(local_state)),
        }
    }

    pub(in crate::participant) fn answered(
        self,
        core: &mut Core,
        result: Result<(), TransportError>,
        now: Now,
    ) -> State {
        let Exchange::Upload(upload) = self.step else { return State::Opening(self) };
        let Self { phase, session, local_state, .. } = self;
        match (upload.receive(core, result, now), phase) {
            (Reply::Answered(()), OpeningPhase::Confirm) => {
                State::Opening(Self::new(OpeningPhase::Unmask, session, local_state))
            }
            (Reply::Answered(()), OpeningPhase::Unmask) => core.answered(session.place, Some(local_state)),
            (Reply::Again(upload), _) => {
                State::Opening(Self { phase, session, local_state, step: Exchange::Upload(upload) })
            }
            (Reply::Failed(error), _) => core.exchange_failed(session.place, error, Some(local_state)),
        }
    }
}

fn sign(core: &mut Core, session: Session, survivors: &[u8]) -> Result<(Session, Bytes, Event), SessionError> {
    let survivors = Survivors::decode(survivors)?;
    let step = session.client()?.waiting_for_survivors()?.check(&survivors, &core.key.signer()?)?;
    core.shown.sign(session.place, &session.members, &survivors.survivors);
    let event = Event::Confirmed { place: session.place, survivors: survivors.survivors.len() };
    Ok((session.advance(&step.persist), step.send.encode().into(), event))
}

fn reveal(core: &Core, session: Session, agreement: &[u8]) -> Result<(Session, Bytes, Event), SessionError> {
    let agreement = Agreement::decode(agreement)?;
    let step = session.client()?.waiting_for_agreement()?.unmask(&agreement, &core.key.signer()?)?;
    let event = Event::Unmasked { place: session.place, signers: agreement.signatures.len() };
    Ok((session.advance(&step.persist), step.send.encode().into(), event))
}
