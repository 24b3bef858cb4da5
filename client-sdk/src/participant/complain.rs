//! Complains that a dealer's shares do not open. The complaint ends the round, so the session's snapshot holds nothing
//! else.

use wire::Attempt;

use super::action::Action;
use super::core::Core;
use super::exchange::Reply;
use super::state::{Complain, MessageUpload, State};
use crate::clock::Now;
use crate::transport::TransportError;

impl Complain {
    pub(super) fn new(place: Attempt, upload: MessageUpload) -> Self {
        Self { place, upload }
    }

    pub(super) fn action(&self, core: &Core, now: Now) -> Action {
        self.upload.action(core, self.place, now)
    }

    pub(super) fn answered(self, core: &mut Core, result: Result<(), TransportError>, now: Now) -> State {
        let place = self.place;
        match self.upload.receive(core, result, now) {
            Reply::Answered(()) => core.answered(place, None),
            Reply::Again(upload) => State::Complain(Self { place, upload }),
            Reply::Failed(error) => core.exchange_failed(place, error, None),
        }
    }
}
