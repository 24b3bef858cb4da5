//! Brings back the tensors that stayed at home, if the task has any.

use std::sync::Arc;
use std::time::Duration;

use secure_agg::client::Masking;
use zeroize::Zeroizing;

use super::base::Base;
use super::core::Core;
use super::machine::{Action, State};
use super::session::Session;
use super::snapshot;
use super::train::Train;
use super::work::{Draws, Masks, NoiseSeed, Plan, Work};
use crate::journal::JournalError;
use crate::personalize::PersonalTensors;
use crate::seed::RoundSeeds;

/// The model is there, its personal part not yet.
pub(super) struct Recall {
    pub(super) plan: Arc<Plan>,
    pub(super) deadline: Duration,
    received: Base,
    /// The session and its masks, if the task has secure aggregation.
    masks: Option<(Session, Box<Masking>)>,
}

impl Recall {
    /// Goes straight to training where everything is shared.
    pub(super) fn enter(
        core: &mut Core,
        plan: Arc<Plan>,
        deadline: Duration,
        received: Base,
        masks: Option<(Session, Box<Masking>)>,
    ) -> State {
        let state = Self { plan, deadline, received, masks };
        if state.plan.is_personal() { State::Recall(state) } else { state.train(core, None) }
    }

    pub(super) fn action(&self) -> Action {
        Action::Load(snapshot::personal(self.plan.place.task))
    }

    pub(super) fn loaded(self, core: &mut Core, result: Result<Option<Zeroizing<Vec<u8>>>, JournalError>) -> State {
        let personal = result.and_then(|record| {
            let name = snapshot::personal(self.plan.place.task);
            let record = record.as_ref().map(|record| record.as_slice());
            self.plan.personal(record).map_err(|error| JournalError::corrupt(&name, error))
        });
        match personal {
            Ok(personal) => self.train(core, personal),
            // Beginning anew would silently throw away what this device has learnt.
            Err(error) => State::Finished(Err(error.into())),
        }
    }

    fn train(self, core: &mut Core, personal: Option<PersonalTensors>) -> State {
        let name = core.identity.as_ref().map_or("", |identity| &identity.certified.name);
        let seeds = match core.settings.seed {
            Some(seed) => RoundSeeds::repeatable(seed, self.plan.place.round, name),
            None => RoundSeeds::fresh(&mut core.rng),
        };
        let draws = Draws { seeds, noise: NoiseSeed::draw(core.secrets.as_mut()) };
        let (session, masks) = match self.masks {
            Some((session, masking)) => (Some(session), Some(Masks::new(masking, Arc::clone(&core.key)))),
            None => (None, None),
        };
        let work = Arc::new(Work::new(Arc::clone(&self.plan), self.received, personal, draws, masks));
        State::Train(Train { plan: self.plan, deadline: self.deadline, work, session })
    }
}
