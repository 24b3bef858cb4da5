//! Brings back the tensors that stayed at home, if the task has any.

use std::sync::Arc;
use std::time::Duration;

use learning::Parameters;
use zeroize::Zeroizing;

use super::machine::{Action, Core, State};
use super::snapshot;
use super::train::Train;
use super::work::{Plan, Work};
use crate::journal::JournalError;
use crate::personalize::PersonalTensors;
use crate::seed::RoundSeeds;

/// The model is there, its personal part not yet.
pub(super) struct Recall {
    pub(super) plan: Arc<Plan>,
    pub(super) deadline: Duration,
    received: Parameters,
}

impl Recall {
    /// Goes straight to training where everything is shared.
    pub(super) fn enter(core: &mut Core, plan: Arc<Plan>, deadline: Duration, received: Parameters) -> State {
        let state = Self { plan, deadline, received };
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
        let work = Work::new(Arc::clone(&self.plan), self.received, personal, seeds);
        State::Train(Train { plan: self.plan, deadline: self.deadline, work: Arc::new(work) })
    }
}
