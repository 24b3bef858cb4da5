//! Complains that a dealer's shares do not open. The complaint ends the round, so the session's snapshot holds only the
//! complaint.

use wire::Attempt;

use super::exchange::Reply;
use crate::clock::Now;
use crate::participant::states::action::Action;
use crate::participant::states::core::Core;
use crate::participant::states::state::{Complain, MessageUpload, State};
use crate::transport::TransportError;

impl Complain {
    pub(in crate::participant) fn new(place: Attempt, upload: MessageUpload) -> Self {
        Self { place, upload }
    }

    pub(in crate::participant) fn action(&self, core: &Core, now: Now) -> Action {
        self.upload.action(core, self.place, now)
    }

    pub(in crate::participant) fn answered(
        self,
        core: &mut Core,
        result: Result<(), TransportError>,
        now: Now,
    ) -> State {
        let place = self.place;
        match self.upload.receive(core, result, now) {
            Reply::Answered(()) => core.answered(place, None),
            Reply::Again(upload) => State::Complain(Self { place, upload }),
            Reply::Failed(error) => core.exchange_failed(place, error, None),
        }
    }
}
