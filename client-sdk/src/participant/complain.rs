//! Tells that a dealer's shares do not open. The round ends with it, so nothing but the complaint is left of the session.

use wire::Attempt;

use super::action::Action;
use super::core::Core;
use super::exchange::Heard;
use super::state::{Complain, Say, State};
use crate::clock::Now;
use crate::transport::TransportError;

impl Complain {
    pub(super) fn new(place: Attempt, say: Say) -> Self {
        Self { place, say }
    }

    pub(super) fn action(&self, core: &Core, now: Now) -> Action {
        self.say.action(core, self.place, now)
    }

    pub(super) fn answered(self, core: &mut Core, result: Result<(), TransportError>, now: Now) -> State {
        let place = self.place;
        match self.say.heard(core, result, now) {
            Heard::Well(()) => core.answered(place, None),
            Heard::Again(say) => State::Complain(Self { place, say }),
            Heard::Left(left) => core.left(place, left, None),
        }
    }
}
