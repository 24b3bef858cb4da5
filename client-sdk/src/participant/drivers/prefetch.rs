//! The requests that a machine will make once its current one has succeeded. On a slow connection a round takes as
//! many round trips as there are dependent requests; requests that only wait for the round to progress can be sent
//! early.

use wire::participant::Announcement;
use wire::{Attempt, ParticipantId, TaskId};

use crate::participant::machine::Machine;
use crate::participant::states::action::Action;
use crate::participant::states::core::Core;
use crate::participant::states::state::{AnnouncementPoll, State};
use crate::transport::Request;

/// Identifies a request that may be made early: equal ones have the same answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// [`Request::Announcement`].
    Announcement(Announcement, Attempt, ParticipantId),
    /// [`Action::Fetch`] of the whole file.
    Model(TaskId, u32),
}

impl Prefetch {
    /// Identifies this action, if it may be made early.
    #[must_use]
    pub fn of(action: &Action) -> Option<Self> {
        match action {
            Action::Send(Request::Announcement { what, place, participant, .. }) => {
                Some(Self::Announcement(*what, *place, *participant))
            }
            Action::Fetch { task, model, have, .. } if have.is_empty() => Some(Self::Model(*task, model.version)),
            Action::Send(_)
            | Action::Fetch { .. }
            | Action::Train(_)
            | Action::Evaluate(_)
            | Action::Load(_)
            | Action::Persist(_)
            | Action::WaitUntil(_)
            | Action::Finished(_) => None,
        }
    }
}

impl Machine {
    /// The actions that follow the current one if it succeeds. A caller may start these requests early and keep their
    /// answers until [`Machine::poll`] returns them; this only saves time. A request may be dropped once it is missing
    /// from both the list after a poll and the poll's result.
    #[must_use]
    pub fn prefetch(&self) -> Vec<Action> {
        self.state.prefetch(&self.core)
    }
}

impl State {
    fn prefetch(&self, core: &Core) -> Vec<Action> {
        let poll = |what, place| AnnouncementPoll::new(what).request(core, place);
        match self {
            // The roster answers keys whose owner was drawn.
            Self::CheckIn(_) => match core.session.as_ref().filter(|session| session.keys().is_some()) {
                Some(session) => vec![poll(Announcement::Roster, session.place)],
                None => Vec::new(),
            },
            Self::Share(state) if state.is_dealing() => {
                let mut next = vec![poll(Announcement::Delivery, state.plan.place)];
                if state.plan.wanted().is_none() {
                    next.push(state.plan.fetch(Vec::new()));
                }
                next
            }
            // Records written in between are for the app or the data use, so an early request remains valid.
            Self::Persist(state) => match &*state.then {
                Self::AwaitDelivery(state) => vec![poll(Announcement::Delivery, state.plan.place)],
                then @ (Self::CheckIn(_) | Self::Upload(_)) => then.prefetch(core),
                _ => Vec::new(),
            },
            Self::Fetch(state) if state.has_session() => vec![poll(Announcement::Delivery, state.plan.place)],
            Self::Upload(state) => {
                state.session_place().map(|place| poll(Announcement::Survivors, place)).into_iter().collect()
            }
            Self::Opening(state) if state.is_signing() => vec![poll(Announcement::Agreement, state.place())],
            Self::Share(_)
            | Self::Fetch(_)
            | Self::Opening(_)
            | Self::Enroll(_)
            | Self::Renew(_)
            | Self::AwaitDelivery(_)
            | Self::Complain(_)
            | Self::LoadLocal(_)
            | Self::Train(_)
            | Self::Abandon(_)
            | Self::FetchFinal(_)
            | Self::Finished(_) => Vec::new(),
        }
    }
}
