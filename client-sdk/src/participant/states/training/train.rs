//! Has the trainer evaluate and train, and persists the result before anything is sent.

use std::sync::Arc;

use bytes::Bytes;
use learning::{Clipping, MetricValue};
use task_spec::TRAINING_LOSS;
use wire::participant::{AbandonReason, Assignment, Counted, LossReport, RefusalCode};
use wire::{Attempt, CoarseLoss, Digest, TaskId};
use zeroize::Zeroizing;

use super::charge::ChargeError;
use super::train_ahead;
use crate::conditions::Readiness;
use crate::journal::JournalError;
use crate::participant::api::event::Event;
use crate::participant::api::plan_error::WorkError;
use crate::participant::journal::record::Record;
use crate::participant::journal::round_end::AbandonCause;
use crate::participant::journal::snapshot::{self, ControlRecord, LocalState, Pending};
use crate::participant::states::action::Action;
use crate::participant::states::core::{Core, persist};
use crate::participant::states::state::{Sending, State, Train};
use crate::participant::task::plan::Plan;
use crate::participant::task::work::{Contribution, WorkOutput};
use crate::personalize::PersonalTensors;
use crate::trainer::TrainerError;
use recipe::device::pipeline::{MaskedInput, PipelineError};

/// Reports to the app that its update was clipped.
fn told_with(core: &mut Core, place: Attempt, clipping: Option<Box<Clipping>>) {
    if let Some(clipping) = clipping {
        core.events.push(Event::Clipped { place, clipping: *clipping });
    }
}

impl Train {
    pub(in crate::participant) fn action(&self) -> Action {
        Action::Train(Arc::clone(&self.work))
    }

    /// Rests until the app's conditions hold. The process may be killed during the rest, so the journal gets the newest checkpoint
    /// first.
    pub(in crate::participant) fn rest(self) -> State {
        match self.work.unwritten() {
            Ok(None) => State::Train(self),
            Ok(Some(record)) => persist(Ok(vec![record]), State::Train(self)),
            Err(error) => State::Finished(Err(error.into())),
        }
    }

    pub(in crate::participant) fn trained(self, core: &mut Core, result: Result<Contribution, WorkError>) -> State {
        let place = self.plan.place;
        if result.is_ok() {
            core.refused_in_a_row = 0;
            core.refused_tasks.forget(place.task);
        }
        match result {
            Ok(contribution) => {
                let then = self.contribute(core, contribution);
                then.unwrap_or_else(|error| State::Finished(Err(error.into())))
            }
            Err(WorkError::Paused) if self.work.has_state() => {
                if core.readiness != Readiness::Ready {
                    core.events.push(Event::Paused { place });
                }
                State::Train(self)
            }
            // It had its time to save the state for resuming; the conditions may hold again by now.
            Err(WorkError::Paused) if core.readiness != Readiness::Ready || self.work.ran_out() => {
                let then = core.give_up(place, AbandonReason::Conditions, None);
                core.without_checkpoint(Some(&self.work), then)
            }
            Err(error) => {
                let then = failed(core, &self.plan, &error);
                core.without_checkpoint(Some(&self.work), then)
            }
        }
    }

    /// Persists the result of a training.
    fn contribute(self, core: &mut Core, contribution: Contribution) -> Result<State, JournalError> {
        let place = self.plan.place;
        let Contribution { output, personal, own, evaluated, trained, examples, clipping, below } = contribution;
        let no_checkpoint = core.no_checkpoint(Some(&self.work))?;
        let local_state = self.local_state(personal.as_ref(), own.as_ref())?;
        let scores = core.scores_record(&self.plan, &evaluated, &trained)?;
        let input = match output {
            WorkOutput::MaskedInput(input) => *input,
            WorkOutput::Update(update) => {
                core.events.push(Event::Evaluated { place, metrics: evaluated });
                core.events.push(Event::Trained { place, metrics: trained, examples });
                told_with(core, place, clipping);
                return Ok(train_ahead::keep(core, &self.plan, *update, local_state, below, [scores, no_checkpoint]));
            }
        };
        if self.session.is_some() && input.signed.is_none() {
            return Ok(failed(core, &self.plan, &WorkError::NotMasked));
        }
        // Before the update is written, let alone sent: from here on it is charged.
        let charged = match core.charge(&self.plan) {
            Ok(charged) => charged,
            Err(ChargeError::Refused(error)) => return Ok(core.refuse(place, &error, None)),
            Err(ChargeError::Journal(error)) => return Err(error),
        };
        // Epsilon does not cover a loss, so private tasks do not get it.
        let asks = self.plan.assignment.report_loss && self.plan.assignment.privacy.is_none();
        if asks && (self.session.is_none() || core.settings.security.tell_loss) {
            core.loss = loss_report(place.task, &trained);
        }
        // Otherwise they were reported after the training.
        if self.plan.wanted().is_none() {
            core.events.push(Event::Evaluated { place, metrics: evaluated });
            core.events.push(Event::Trained { place, metrics: trained, examples });
            told_with(core, place, clipping);
        }
        let kept = self.control(&input)?;
        // An update that was trained ahead is forgotten before an input made of it can be sent.
        let own_first = self.plan.wanted().map(|_| core.ahead.local_copies()).unwrap_or_default();
        let (let_go, local_state, below) = match self.plan.wanted() {
            Some(_) => match core.ahead.let_go()? {
                Some((record, held)) => (Some(record), held.local_state, held.below),
                None => (None, LocalState::NOTHING, None),
            },
            None => (None, local_state, below),
        };
        let (pending, signed) = self.pending(&input, local_state, below);
        let records = core.pending_record(&pending);
        let records = records.map(|records| {
            let before = charged.into_iter().chain(own_first).chain(let_go).chain(kept).chain(scores);
            before.chain(records).chain(no_checkpoint).collect()
        });
        Ok(persist(records, State::Upload(Sending::new(pending, signed))))
    }

    /// Local state of the same training.
    fn local_state(
        &self,
        personal: Option<&PersonalTensors>,
        own: Option<&PersonalTensors>,
    ) -> Result<LocalState, JournalError> {
        let name = snapshot::personal(self.plan.place.task);
        let personal = personal.map(|personal| personal.to_record()).transpose();
        let personal = personal.map_err(|error| JournalError::corrupt(&name, error))?;
        let own = own.map(|own| self.own(own)).transpose()?;
        Ok(LocalState { personal, own, residual: None })
    }

    /// The record of the control variate: the one that counts, and the one that will if this update does. Written
    /// before the update is sent.
    fn control(&self, input: &MaskedInput) -> Result<Option<Record>, JournalError> {
        let Some(values) = &input.control else { return Ok(None) };
        let Attempt { task, round, attempt } = self.plan.place;
        let bytes = ControlRecord::encode(self.work.control(), Counted { round, attempt }, values)?;
        Ok(Some(Record::new(snapshot::control(task), bytes)))
    }

    /// The record of the personalized model.
    fn own(&self, own: &PersonalTensors) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        let Assignment { round, task, model, .. } = &*self.plan.assignment;
        let tensors = own.to_record().map_err(|error| JournalError::corrupt(&snapshot::own(*task), error))?;
        snapshot::encode_personalized(*round, model.architecture.clone(), &tensors)
    }

    /// The record to write, and the signature to send with the body.
    fn pending(self, input: &MaskedInput, local_state: LocalState, below: Option<Digest>) -> (Pending, Option<Bytes>) {
        let place = self.plan.place;
        let MaskedInput { body, sha256, parts, signed, residual, .. } = input;
        let local_state =
            LocalState { residual: residual.as_ref().map(|residual| residual.to_record()), ..local_state };
        let (session, message) = match (self.session, signed) {
            (Some(session), Some(signed)) => (Some(session.advance(&signed.snapshot)), Some(signed.message.clone())),
            _ => (None, None),
        };
        let (sha256, body, parts) = (*sha256, body.clone(), parts.clone());
        (Pending { place, sha256, body, parts, local_state, session, below }, message)
    }
}

/// The training loss in five bits; `None` if the trainer did not measure it.
fn loss_report(task: TaskId, trained: &[(String, MetricValue)]) -> Option<LossReport> {
    let (_, loss) = trained.iter().find(|(name, metric)| name == TRAINING_LOSS && metric.count > 0)?;
    Some(LossReport { task, level: CoarseLoss::of(loss.value)? })
}

fn failed(core: &mut Core, plan: &Plan, error: &WorkError) -> State {
    let place = plan.place;
    core.events.push(Event::TrainingFailed { place, error: error.to_string() });
    let why: AbandonCause = match error {
        WorkError::Trainer(TrainerError::Refused(_)) | WorkError::Pipeline(PipelineError::Refused(_)) => {
            RefusalCode::App.into()
        }
        _ => AbandonReason::TrainingFailed.into(),
    };
    core.give_up(place, why, None)
}
