//! Loads local state: personal tensors, the codec's residual and the control variate, as the task requires.

use std::sync::Arc;
use std::time::Duration;

use learning::Residual;
use secure_agg::client::Masking;
use wire::participant::RefusalCode;
use zeroize::Zeroizing;

use super::train_ahead;
use crate::clock::Now;
use crate::journal::JournalError;
use crate::participant::api::event::Event;
use crate::participant::journal::session::Session;
use crate::participant::journal::snapshot::{self, Control};
use crate::participant::model::base::RoundBase;
use crate::participant::states::action::Action;
use crate::participant::states::core::Core;
use crate::participant::states::state::{LoadLocal, LoadStep, State, Train};
use crate::participant::task::plan::{NoControl, Plan};
use crate::participant::task::work::{Draws, Earlier, Masks, NoiseSeed, RoundWork, SavedState};
use crate::personalize::PersonalTensors;
use crate::seed::RoundSeeds;

impl LoadLocal {
    /// Skips to training if all local state is absent.
    pub(in crate::participant) fn enter(
        core: &mut Core,
        plan: Arc<Plan>,
        deadline: Duration,
        (received, masks): (RoundBase, Option<(Session, Box<Masking>)>),
        now: Now,
    ) -> State {
        let state = Self { plan, deadline, received, masks, step: LoadStep::Personal };
        // An update trained ahead includes the training of personal tensors.
        let trains = state.plan.wanted().is_none();
        if trains && state.plan.is_personal() { State::LoadLocal(state) } else { state.recalled(core, None, now) }
    }

    pub(in crate::participant) fn action(&self) -> Action {
        Action::Load(self.name())
    }

    fn name(&self) -> String {
        match self.step {
            LoadStep::Personal => snapshot::personal(self.plan.place.task),
            LoadStep::Residual(_) => snapshot::residual(self.plan.place.task),
            LoadStep::Update(_) => snapshot::UPDATE.to_owned(),
            LoadStep::Control => snapshot::control(self.plan.place.task),
        }
    }

    /// A damaged record is an error: starting over would silently discard this device's training.
    pub(in crate::participant) fn loaded(
        self,
        core: &mut Core,
        result: Result<Option<Zeroizing<Vec<u8>>>, JournalError>,
        now: Now,
    ) -> State {
        let name = self.name();
        let record = match result {
            Ok(record) => record,
            Err(error) => return State::Finished(Err(error.into())),
        };
        let record = record.as_ref().map(|record| record.as_slice());
        match self.step {
            LoadStep::Personal => match self.plan.personal(record) {
                Ok(personal) => self.recalled(core, personal, now),
                Err(error) => State::Finished(Err(JournalError::corrupt(&name, error).into())),
            },
            LoadStep::Residual(_) => match record.map(|record| self.plan.residual(record)).transpose() {
                Ok(residual) => self.remembered(core, residual, now),
                Err(error) => State::Finished(Err(JournalError::corrupt(&name, error).into())),
            },
            LoadStep::Update(residual) => match train_ahead::recall(&self.plan, record) {
                Ok(update) => {
                    let received = RoundBase::Update(Arc::new(update));
                    Self { received, step: LoadStep::Residual(None), ..self }.train(core, residual, None, now)
                }
                Err(error) => State::Finished(Err(error.into())),
            },
            LoadStep::Control => match self.plan.control(record) {
                Ok(control) => self.train(core, None, control, now),
                Err(NoControl::Unsettled(reason)) => {
                    let place = self.plan.place;
                    core.events.push(Event::Refused { place, reason });
                    core.give_up(place, RefusalCode::Assignment, None)
                }
                Err(NoControl::Journal(error)) => State::Finished(Err(error.into())),
            },
        }
    }

    /// Continues after the personal tensors were loaded.
    fn recalled(self, core: &mut Core, personal: Option<PersonalTensors>, now: Now) -> State {
        // Tasks with control variates have neither personal tensors nor residuals.
        if self.plan.keeps_control() {
            return State::LoadLocal(Self { step: LoadStep::Control, ..self });
        }
        let state = Self { step: LoadStep::Residual(personal), ..self };
        if state.plan.keeps_residual() { State::LoadLocal(state) } else { state.remembered(core, None, now) }
    }

    /// Continues after the residual was loaded.
    fn remembered(self, core: &mut Core, residual: Option<Residual>, now: Now) -> State {
        if self.plan.wanted().is_none() {
            return self.train(core, residual, None, now);
        }
        State::LoadLocal(Self { step: LoadStep::Update(residual), ..self })
    }

    fn train(self, core: &mut Core, residual: Option<Residual>, control: Option<Control>, now: Now) -> State {
        let personal = match self.step {
            LoadStep::Residual(personal) => personal,
            LoadStep::Personal | LoadStep::Update(_) | LoadStep::Control => None,
        };
        let name = core.identity.as_ref().map_or("", |identity| &identity.certified.name);
        let mut seeds = match core.settings.seed {
            Some(seed) => RoundSeeds::repeatable(seed, self.plan.place.round, name),
            None => RoundSeeds::fresh(&mut core.rng),
        };
        let unfinished = core.unfinished.take().filter(|unfinished| unfinished.id == self.plan.training_id());
        if let Some(unfinished) = &unfinished {
            seeds.training = unfinished.seed;
        }
        let goes_on = unfinished.is_some();
        let noise = NoiseSeed::draw(core.secrets.as_mut());
        #[cfg(feature = "deliberate-faults")]
        let noise = noise.or_repeatable(self.plan.place, name);
        let draws = Draws { seeds, noise };
        let (session, masks) = match self.masks {
            Some((session, masking)) => (Some(session), Some(Masks::new(masking, Arc::clone(&core.key)))),
            None => (None, None),
        };
        let work = Arc::new(RoundWork::new(
            Arc::clone(&self.plan),
            self.received,
            SavedState { personal, residual, control },
            draws,
            masks,
            now.wall.plus(self.deadline.saturating_sub(now.elapsed)),
            Earlier { unfinished, max_model_bytes: core.settings.max_model_bytes },
        ));
        let place = self.plan.place;
        let then = State::Train(Train { plan: self.plan, deadline: self.deadline, work, session });
        if goes_on {
            core.events.push(Event::Resumed { place });
            return then;
        }
        // Another training's.
        core.without_checkpoint(None, then)
    }
}
