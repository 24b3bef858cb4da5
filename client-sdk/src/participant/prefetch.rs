//! What a machine will ask for once its present request has succeeded. Over a long line a round takes as many round trips as
//! there are requests that wait for each other; one that only waits for the round to go on can be on its way already.

use wire::participant::Announcement;
use wire::{Attempt, ParticipantId, TaskId};

use super::action::Action;
use super::core::Core;
use super::machine::Machine;
use super::state::{AnnouncementPoll, State};
use crate::transport::Request;

/// Names a request that may be made ahead of its time: two with the same name have the same answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// [`Request::Announcement`].
    Announcement(Announcement, Attempt, ParticipantId),
    /// [`Action::Fetch`] of the whole file.
    Model(TaskId, u32),
}

impl Prefetch {
    /// The name of this action, if it is one that may be made ahead of its time.
    #[must_use]
    pub fn of(action: &Action) -> Option<Self> {
        match action {
            Action::Send(Request::Announcement { what, place, participant, .. }) => {
                Some(Self::Announcement(*what, *place, *participant))
            }
            Action::Fetch { task, model, have } if have.is_empty() => Some(Self::Model(*task, model.version)),
            Action::Send(_)
            | Action::Fetch { .. }
            | Action::Train(_)
            | Action::Load(_)
            | Action::Persist(_)
            | Action::WaitUntil(_)
            | Action::Finished(_) => None,
        }
    }
}

impl Machine {
    /// What the machine will ask for after what it does now, if that goes well. A caller may make these requests at once and
    /// keep their answers until [`Machine::poll`] asks for them; one that does not loses time alone. What is not named any
    /// more after a poll, and is not what that poll asked for, will not be asked for.
    #[must_use]
    pub fn prefetch(&self) -> Vec<Action> {
        self.state.prefetch(&self.core)
    }
}

impl State {
    fn prefetch(&self, core: &Core) -> Vec<Action> {
        let poll = |what, place| AnnouncementPoll::new(what).request(core, place);
        match self {
            // The roster is the answer to keys that were drawn.
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
            Self::Fetch(state) if state.has_session() => vec![poll(Announcement::Delivery, state.plan.place)],
            Self::Upload(state) => {
                state.session_place().map(|place| poll(Announcement::Survivors, place)).into_iter().collect()
            }
            Self::Opening(state) if state.is_signing() => vec![poll(Announcement::Agreement, state.place())],
            Self::Share(_)
            | Self::Fetch(_)
            | Self::Opening(_)
            | Self::Persist(_)
            | Self::Enroll(_)
            | Self::Renew(_)
            | Self::AwaitDelivery(_)
            | Self::Complain(_)
            | Self::LoadLocal(_)
            | Self::Train(_)
            | Self::Abandon(_)
            | Self::Depart(_)
            | Self::AwaitAbortProof(_)
            | Self::Finished(_) => Vec::new(),
        }
    }
}
