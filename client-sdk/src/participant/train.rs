//! Has the trainer evaluate and train, and keeps the result safe before anything is sent.

use std::sync::Arc;

use bytes::Bytes;
use learning::MetricValue;
use task_spec::TRAINING_LOSS;
use wire::participant::{AbandonReason, Assignment, Counted, LossReport, RefusalCode};
use wire::{Attempt, CoarseLoss, TaskId};
use zeroize::Zeroizing;

use super::action::Action;
use super::core::{Core, Uncharged, persist};
use super::ended::GivenUp;
use super::event::Event;
use super::plan::Plan;
use super::plan_error::WorkError;
use super::record::Record;
use super::snapshot::{self, AtHome, ControlRecord, Pending};
use super::state::{Sending, State, Train};
use super::train_ahead;
use super::work::{Contribution, Made};
use crate::journal::JournalError;
use crate::personalize::PersonalTensors;
use crate::trainer::TrainerError;
use recipe::device::pipeline::{MaskedInput, PipelineError};

impl Train {
    pub(super) fn action(&self) -> Action {
        Action::Train(Arc::clone(&self.work))
    }

    pub(super) fn trained(self, core: &mut Core, result: Result<Contribution, WorkError>) -> State {
        let place = self.plan.place;
        let Contribution { made, personal, own, evaluated, trained, examples } = match result {
            Ok(contribution) => contribution,
            Err(error) => return failed(core, &self.plan, &error),
        };
        let at_home = match self.at_home(personal.as_ref(), own.as_ref()) {
            Ok(at_home) => at_home,
            Err(error) => return State::Finished(Err(error.into())),
        };
        let input = match made {
            Made::Input(input) => input,
            Made::Update(update) => {
                core.events.push(Event::Evaluated { place, metrics: evaluated });
                core.events.push(Event::Trained { place, metrics: trained, examples });
                return train_ahead::keep(core, &self.plan, &update, at_home);
            }
        };
        if self.session.is_some() && input.signed.is_none() {
            return failed(core, &self.plan, &WorkError::NotMasked);
        }
        // Before the update is kept, let alone sent: from here on it counts.
        let charged = match core.charge(&self.plan) {
            Ok(charged) => charged,
            Err(Uncharged::Refused(error)) => return core.refuse(place, &error, None),
            Err(Uncharged::Journal(error)) => return State::Finished(Err(error.into())),
        };
        let given = match core.give(&self.plan, self.session.as_ref()) {
            Ok(given) => given,
            Err(Uncharged::Refused(error)) => return core.refuse(place, &error, None),
            Err(Uncharged::Journal(error)) => return State::Finished(Err(error.into())),
        };
        // What an epsilon promises does not cover a loss: a private task that asks for one is not told.
        let asks = self.plan.assignment.report_loss && self.plan.assignment.privacy.is_none();
        if asks && (self.session.is_none() || core.settings.security.tell_loss) {
            core.loss = loss_report(place.task, &trained);
        }
        // Otherwise they were told when it was trained.
        if self.plan.wanted().is_none() {
            core.events.push(Event::Evaluated { place, metrics: evaluated });
            core.events.push(Event::Trained { place, metrics: trained, examples });
        }
        let kept = match self.control(&input) {
            Ok(kept) => kept,
            Err(error) => return State::Finished(Err(error.into())),
        };
        // An update that was trained ahead is forgotten before an input made of it can be sent.
        let own_first = self.plan.wanted().map(|_| core.ahead.at_home_copies()).unwrap_or_default();
        let (let_go, at_home) = match self.plan.wanted().map(|_| core.ahead.let_go()).transpose() {
            Ok(Some(let_go)) => let_go,
            Ok(None) => (None, at_home),
            Err(error) => return State::Finished(Err(error.into())),
        };
        let (pending, signed) = self.pending(&input, at_home);
        let records = core.pending_record(&pending);
        let records = records.map(|records| {
            charged.into_iter().chain(given).chain(own_first).chain(let_go).chain(kept).chain(records).collect()
        });
        persist(records, State::Upload(Sending::new(pending, signed)))
    }

    /// What stays on the device of the same training.
    fn at_home(
        &self,
        personal: Option<&PersonalTensors>,
        own: Option<&PersonalTensors>,
    ) -> Result<AtHome, JournalError> {
        let name = snapshot::personal(self.plan.place.task);
        let personal = personal.map(|personal| personal.to_record()).transpose();
        let personal = personal.map_err(|error| JournalError::corrupt(&name, error))?;
        let own = own.map(|own| self.own(own)).transpose()?;
        Ok(AtHome { personal, own, residual: None })
    }

    /// The record of the control variate: as it counted, and as it will if this update does. Before the update is sent.
    fn control(&self, input: &MaskedInput) -> Result<Option<Record>, JournalError> {
        let Some(values) = &input.control else { return Ok(None) };
        let Attempt { task, round, attempt } = self.plan.place;
        let bytes = ControlRecord::encode(self.work.control(), Counted { round, attempt }, values)?;
        Ok(Some(Record::new(snapshot::control(task), bytes)))
    }

    /// The record of the device's own model.
    fn own(&self, own: &PersonalTensors) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        let Assignment { round, task, model, .. } = &*self.plan.assignment;
        let tensors = own.to_record().map_err(|error| JournalError::corrupt(&snapshot::own(*task), error))?;
        snapshot::encode_own(*round, model.architecture.clone(), &tensors)
    }

    /// What is kept, and what is sent beside the body.
    fn pending(self, input: &MaskedInput, at_home: AtHome) -> (Pending, Option<Bytes>) {
        let place = self.plan.place;
        let MaskedInput { body, sha256, signed, residual, .. } = input;
        let at_home = AtHome { residual: residual.as_ref().map(|residual| residual.to_record()), ..at_home };
        let (session, message) = match (self.session, signed) {
            (Some(session), Some(signed)) => (Some(session.advance(&signed.snapshot)), Some(signed.message.clone())),
            _ => (None, None),
        };
        (Pending { place, sha256: *sha256, body: body.clone(), at_home, session }, message)
    }
}

/// The training loss in five bits; nothing if the trainer measured none.
fn loss_report(task: TaskId, trained: &[(String, MetricValue)]) -> Option<LossReport> {
    let (_, loss) = trained.iter().find(|(name, metric)| name == TRAINING_LOSS && metric.count > 0)?;
    Some(LossReport { task, level: CoarseLoss::of(loss.value)? })
}

fn failed(core: &mut Core, plan: &Plan, error: &WorkError) -> State {
    let place = plan.place;
    core.events.push(Event::TrainingFailed { place, error: error.to_string() });
    let why: GivenUp = match error {
        WorkError::Trainer(TrainerError::Refused(_)) | WorkError::Pipeline(PipelineError::Refused(_)) => {
            RefusalCode::App.into()
        }
        _ => AbandonReason::TrainingFailed.into(),
    };
    core.give_up(place, why, None)
}
