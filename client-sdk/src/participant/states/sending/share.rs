//! Before training: checks the members and deals them shares of this participant's mask seeds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use secure_agg::client::Client;
use secure_agg::rejection::Refusal;
use wire::participant::{Announcement, Answer};

use super::exchange::Reply;
use crate::clock::Now;
use crate::participant::api::event::Event;
use crate::participant::journal::session::Session;
use crate::participant::model::base::RoundBase;
use crate::participant::states::action::Action;
use crate::participant::states::core::{Core, persist};
use crate::participant::states::joining::join::deal;
use crate::participant::states::state::{
    AnnouncementPoll, AwaitDelivery, Exchange, Fetch, MessageUpload, Share, State,
};
use crate::participant::task::plan::Plan;
use crate::transport::TransportError;

impl Share {
    /// Starts, or after a restart sends the dealt shares again.
    pub(in crate::participant) fn enter(
        core: &mut Core,
        plan: Arc<Plan>,
        deadline: Duration,
        session: Session,
    ) -> State {
        let step = match session.client() {
            Ok(Client::ShareKeys(_)) => Exchange::Poll(AnnouncementPoll::new(Announcement::Roster)),
            // A model replaced since then would be trained in a session that is bound to another.
            Ok(Client::MaskInput(_)) if session.model != Some(plan.assignment.base.sha256) => {
                return core.refuse(plan.place, &Refusal::Different { what: "model" }.into(), None);
            }
            Ok(client @ Client::MaskInput(_)) => {
                Exchange::Upload(MessageUpload::new(Answer::KeyShares, client.resend()))
            }
            Ok(_) => return core.refuse(plan.place, &Refusal::OutOfOrder.into(), None),
            Err(error) => return core.refuse(plan.place, &error, None),
        };
        State::Share(Self { plan, deadline, session, step })
    }

    /// Whether the shares are being sent.
    pub(in crate::participant) fn is_dealing(&self) -> bool {
        self.step.is_uploading()
    }

    pub(in crate::participant) fn action(&mut self, core: &Core, now: Now) -> Action {
        self.step.action(core, self.plan.place, now)
    }

    pub(in crate::participant) fn announced(
        self,
        core: &mut Core,
        result: Result<Option<Bytes>, TransportError>,
        now: Now,
    ) -> State {
        let Exchange::Poll(poll) = self.step else { return State::Share(self) };
        let place = self.plan.place;
        let roster = match poll.receive(core, result, now) {
            Reply::Answered(roster) => roster,
            Reply::Again(poll) => return State::Share(Self { step: Exchange::Poll(poll), ..self }),
            Reply::Failed(error) => return core.exchange_failed(place, error, None),
        };
        let Self { plan, deadline, session, .. } = self;
        match deal(core, session, &roster, plan.assignment.base.sha256, now) {
            Ok((session, shares)) => {
                core.events.push(Event::Shared { place, participants: session.members.len() });
                let records = core.session_record(&session, None);
                let step = Exchange::Upload(MessageUpload::new(Answer::KeyShares, shares));
                persist(records, State::Share(Self { plan, deadline, session, step }))
            }
            Err(error) => core.refuse(place, &error, None),
        }
    }

    pub(in crate::participant) fn answered(
        self,
        core: &mut Core,
        result: Result<(), TransportError>,
        now: Now,
    ) -> State {
        let Exchange::Upload(upload) = self.step else { return State::Share(self) };
        let Self { plan, deadline, session, .. } = self;
        match upload.receive(core, result, now) {
            // Others may still be dealing.
            Reply::Answered(()) if plan.wanted().is_some() => {
                State::AwaitDelivery(AwaitDelivery::new(plan, deadline, RoundBase::Held, session))
            }
            Reply::Answered(()) => State::Fetch(Fetch::new(plan, deadline, Some(session))),
            Reply::Again(upload) => State::Share(Self { plan, deadline, session, step: Exchange::Upload(upload) }),
            Reply::Failed(error) => core.exchange_failed(plan.place, error, None),
        }
    }
}
