//! A job that waits for the app.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use learning::{Layout, Parameters, Table};

use super::manner::Manner;
use super::update::UpdateError;
use crate::trainer::{Cancel, Purpose, Trained, TrainerError, TrainingJob, is_of_model};

/// How long an app's training that was asked to pause has to save a checkpoint: enough for a batch and its state, and no longer than work
/// may go on against the conditions.
pub(super) const PAUSE_GRACE: Duration = Duration::from_secs(10);

/// A model to train, or an analysis to give rows for.
#[derive(Debug)]
pub struct Job {
    /// The model to start from, or its adapters; the app may train it in place. None ([`Layout::none`]) of an analysis.
    pub parameters: Parameters,
    /// The plan, what the training is for, and all else there is to know; also where checkpoints of the training are kept.
    pub training: TrainingJob,
    /// What the training has to heed beside its plan, or the analysis: nothing that the app's [`Abilities`](super::Abilities) do not include.
    pub manner: Manner,
    /// Where the result goes.
    pub answer: Answer,
}

/// Takes the result of one job. Dropped without one, the job counts as failed, unless it should pause and has saved a checkpoint: then it
/// comes again, and goes on.
#[derive(Debug)]
pub struct Answer {
    purpose: Purpose,
    cancel: Cancel,
    taken_back: TakenBack,
    to: SyncSender<Result<Answered, TrainerError>>,
}

/// What a job was answered with.
#[derive(Debug)]
pub(super) enum Answered {
    Trained(Trained),
    Rows(Table),
}

impl Answered {
    /// The model of a job that trains.
    pub(super) fn trained(self) -> Result<Trained, TrainerError> {
        match self {
            Self::Trained(trained) => Ok(trained),
            Self::Rows(_) => Err(TrainerError::failed(UpdateError::NoAnalysis)),
        }
    }

    /// The rows of a job that is an analysis.
    pub(super) fn rows(self) -> Result<Table, TrainerError> {
        match self {
            Self::Rows(table) => Ok(table),
            Self::Trained(_) => Err(TrainerError::failed(UpdateError::Analysis)),
        }
    }
}

/// The parameters of a job that is an analysis.
pub(super) fn no_model() -> Parameters {
    Parameters::zeros(Arc::new(Layout::none()))
}

/// The round no longer waits for the job: it was cancelled, or its time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the round no longer waits for this job; ask for the next one")]
pub struct Overdue;

/// Whether the job was taken back. Answers are put in under its lock, so each either came before that or is too late.
#[derive(Clone, Debug, Default)]
pub(super) struct TakenBack(Arc<Mutex<bool>>);

impl TakenBack {
    fn is_taken(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No answer can be put any more.
    pub(super) fn take(&self) {
        *self.is_taken() = true;
    }
}

impl Answer {
    /// An answer to this job, where it arrives, and what takes the job back.
    pub(super) fn to(job: &TrainingJob) -> (Self, Receiver<Result<Answered, TrainerError>>, TakenBack) {
        let ((to, answered), taken_back) = (sync_channel(1), TakenBack::default());
        let (purpose, cancel) = (job.purpose, job.cancel.clone());
        (Self { purpose, cancel, taken_back: taken_back.clone(), to }, answered, taken_back)
    }

    /// Whether nobody waits for the result any more. A job that was paused comes again when it goes on.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.cancel.is_cancelled() || *self.taken_back.is_taken()
    }

    /// Hands in the result, with parameters in the layout of the job's. Metrics that are not of the training itself (`train_…`) count as
    /// those of the received model. With [`Purpose::Own`] they are of another model, and are dropped. It is no answer to an analysis, whose
    /// round is then given up.
    ///
    /// # Errors
    /// [`Overdue`].
    pub fn finish(self, mut trained: Trained) -> Result<(), Overdue> {
        if self.purpose == Purpose::Own {
            trained.metrics.retain(|(name, _)| !is_of_model(name));
        }
        self.put(Ok(Answered::Trained(trained)))
    }

    /// Hands in this device's rows for an analysis ([`Manner::Analysis`]), with its columns, in their order. They stay on the device: what it
    /// sends is what the analysis counts of them. A table that does not fit ([`AnalyticsSpec::check`](learning::AnalyticsSpec::check)) gives the
    /// round up, as rows for a job that trains do.
    ///
    /// # Errors
    /// [`Overdue`].
    pub fn rows(self, table: Table) -> Result<(), Overdue> {
        self.put(Ok(Answered::Rows(table)))
    }

    /// Gives the round up because training failed. The reason stays on the device.
    ///
    /// # Errors
    /// [`Overdue`].
    pub fn fail(self, reason: impl Into<String>) -> Result<(), Overdue> {
        self.put(Err(TrainerError::failed(reason.into())))
    }

    /// Gives the round up because the app does not do such jobs. The reason stays on the device.
    ///
    /// # Errors
    /// [`Overdue`].
    pub fn refuse(self, reason: impl Into<String>) -> Result<(), Overdue> {
        self.put(Err(TrainerError::refused(reason.into())))
    }

    fn put(self, answer: Result<Answered, TrainerError>) -> Result<(), Overdue> {
        let is_taken = self.taken_back.is_taken();
        if self.cancel.is_cancelled() || *is_taken {
            return Err(Overdue);
        }
        // The channel has room for one answer, so that putting it in does not block under the lock.
        self.to.send(answer).map_err(|_| Overdue)
    }
}

/// Whether a job that was left without an answer comes again: it should pause, and has saved a checkpoint.
pub(super) fn rests(job: &TrainingJob) -> bool {
    job.checkpoints.should_pause() && job.checkpoints.has_state()
}
