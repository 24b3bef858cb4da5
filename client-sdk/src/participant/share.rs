//! Before anything is trained: judges who takes part, and deals them shares of the seeds of this participant's masks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use secure_agg::client::Client;
use secure_agg::rejection::Refusal;
use wire::participant::{Announcement, Answer};

use super::action::Action;
use super::base::Base;
use super::core::{Core, persist};
use super::event::Event;
use super::exchange::Heard;
use super::join::deal;
use super::plan::Plan;
use super::session::Session;
use super::state::{Ask, AwaitDelivery, Exchange, Fetch, Say, Share, State};
use crate::clock::Now;
use crate::transport::TransportError;

impl Share {
    /// Begins; or, after a restart, says again what was dealt.
    pub(super) fn enter(core: &mut Core, plan: Arc<Plan>, deadline: Duration, session: Session) -> State {
        let step = match session.client() {
            Ok(Client::ShareKeys(_)) => Exchange::Ask(Ask::new(Announcement::Roster)),
            // A model that was swapped meanwhile would be trained in a session that is bound to another.
            Ok(Client::MaskInput(_)) if session.model != Some(plan.assignment.base.sha256) => {
                return core.refuse(plan.place, &Refusal::Different { what: "model" }.into(), None);
            }
            Ok(client @ Client::MaskInput(_)) => Exchange::Say(Say::new(Answer::KeyShares, client.resend())),
            Ok(_) => return core.refuse(plan.place, &Refusal::OutOfOrder.into(), None),
            Err(error) => return core.refuse(plan.place, &error, None),
        };
        State::Share(Self { plan, deadline, session, step })
    }

    /// Whether the shares are on their way.
    pub(super) fn is_dealing(&self) -> bool {
        self.step.is_saying()
    }

    pub(super) fn action(&mut self, core: &Core, now: Now) -> Action {
        self.step.action(core, self.plan.place, now)
    }

    pub(super) fn announced(self, core: &mut Core, result: Result<Option<Bytes>, TransportError>, now: Now) -> State {
        let Self { plan, deadline, session, step } = self;
        let Exchange::Ask(ask) = step else { return State::Share(Self { plan, deadline, session, step }) };
        let roster = match ask.heard(core, result, now) {
            Heard::Well(roster) => roster,
            Heard::Again(ask) => return State::Share(Self { plan, deadline, session, step: Exchange::Ask(ask) }),
            Heard::Left(left) => return core.left(plan.place, left, None),
        };
        let place = plan.place;
        match deal(core, session, &roster, plan.assignment.base.sha256, now) {
            Ok((session, shares)) => {
                core.events.push(Event::Shared { place, participants: session.members.len() });
                let records = core.session_record(&session, None);
                let step = Exchange::Say(Say::new(Answer::KeyShares, shares));
                persist(records, State::Share(Self { plan, deadline, session, step }))
            }
            Err(error) => core.refuse(place, &error, None),
        }
    }

    pub(super) fn answered(self, core: &mut Core, result: Result<(), TransportError>, now: Now) -> State {
        let Self { plan, deadline, session, step } = self;
        let Exchange::Say(say) = step else { return State::Share(Self { plan, deadline, session, step }) };
        match say.heard(core, result, now) {
            // The others deal meanwhile.
            Heard::Well(()) if plan.wanted().is_some() => {
                State::AwaitDelivery(AwaitDelivery::new(plan, deadline, Base::Held, session))
            }
            Heard::Well(()) => State::Fetch(Fetch::new(plan, deadline, Some(session))),
            Heard::Again(say) => State::Share(Self { plan, deadline, session, step: Exchange::Say(say) }),
            Heard::Left(left) => core.left(plan.place, left, None),
        }
    }
}
