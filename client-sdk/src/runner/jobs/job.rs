//! A job that waits for the app.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use learning::{Layout, Parameters, Table};

use super::constraints::JobConstraints;
use super::update::UpdateError;
use crate::trainer::{Cancel, Purpose, Trained, TrainerError, TrainingJob, is_of_model};

/// Time for an app's training to save a checkpoint after a pause request: enough for a batch and its state, and short
/// enough for work against the device conditions.
pub(in crate::runner) const PAUSE_GRACE: Duration = Duration::from_secs(10);

/// A model to train, or an analysis to answer with rows.
#[derive(Debug)]
pub struct Job {
    /// The initial model, or its adapters; the app may train it in place. Empty ([`Layout::none`]) for an
    /// analysis, except an evaluation, which measures them.
    pub parameters: Parameters,
    /// Plan, purpose and context of the training, and its checkpoints.
    pub training: TrainingJob,
    /// Constraints of the training, or the analysis. Within the app's [`Capabilities`](crate::runner::Capabilities).
    pub constraints: JobConstraints,
    /// Accepts the result of this job.
    pub answer: Answer,
}

/// Accepts the result of one job. If it is dropped without a result, the job counts as failed, unless it should pause
/// and has saved a checkpoint: then it is issued again.
#[derive(Debug)]
pub struct Answer {
    purpose: Purpose,
    cancel: Cancel,
    taken_back: TakenBack,
    to: SyncSender<Result<Answered, TrainerError>>,
}

/// The answer to a job.
#[derive(Debug)]
pub(in crate::runner) enum Answered {
    Trained(Trained),
    Rows(Table),
}

impl Answered {
    /// The model of a training job.
    pub(in crate::runner) fn trained(self) -> Result<Trained, TrainerError> {
        match self {
            Self::Trained(trained) => Ok(trained),
            Self::Rows(_) => Err(TrainerError::failed(UpdateError::NoAnalysis)),
        }
    }

    /// The rows of an analysis.
    pub(in crate::runner) fn rows(self) -> Result<Table, TrainerError> {
        match self {
            Self::Rows(table) => Ok(table),
            Self::Trained(_) => Err(TrainerError::failed(UpdateError::Analysis)),
        }
    }
}

/// The empty parameters of an analysis.
pub(in crate::runner) fn no_model() -> Parameters {
    Parameters::zeros(Arc::new(Layout::none()))
}

/// The round has stopped waiting for the job: it was cancelled or its time is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the round no longer waits for this job; ask for the next one")]
pub struct Overdue;

/// Whether the job was withdrawn. Answers are stored under its lock, so each is either earlier or too late.
#[derive(Clone, Debug, Default)]
pub(in crate::runner) struct TakenBack(Arc<Mutex<bool>>);

impl TakenBack {
    fn is_taken(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rejects answers from now on.
    pub(in crate::runner) fn take(&self) {
        *self.is_taken() = true;
    }
}

impl Answer {
    /// Creates an answer, its receiver, and the handle that withdraws the job.
    pub(in crate::runner) fn to(job: &TrainingJob) -> (Self, Receiver<Result<Answered, TrainerError>>, TakenBack) {
        let ((to, answered), taken_back) = (sync_channel(1), TakenBack::default());
        let (purpose, cancel) = (job.purpose, job.cancel.clone());
        (Self { purpose, cancel, taken_back: taken_back.clone(), to }, answered, taken_back)
    }

    /// Whether the job was cancelled or withdrawn. A paused job is issued again later.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.cancel.is_cancelled() || *self.taken_back.is_taken()
    }

    /// Submits the result, with parameters in the job's layout. Metrics, except those of the training (`train_…`),
    /// count as metrics of the received model. With [`Purpose::Own`] they belong to another model and are dropped. For
    /// an analysis this is the wrong answer, which abandons the round.
    ///
    /// # Errors
    /// [`Overdue`] if the round has stopped waiting for this job.
    pub fn finish(self, mut trained: Trained) -> Result<(), Overdue> {
        if self.purpose == Purpose::Own {
            trained.metrics.retain(|(name, _)| !is_of_model(name));
        }
        self.put(Ok(Answered::Trained(trained)))
    }

    /// Submits this device's rows for an analysis ([`JobConstraints::Analysis`]), with its columns in their order. The rows
    /// stay on the device; only the result of the analysis on them is sent. A table that does not fit
    /// ([`AnalyticsSpec::check`](learning::AnalyticsSpec::check)) abandons the round, and so do rows for a training
    /// job.
    ///
    /// # Errors
    /// [`Overdue`] if the round has stopped waiting for this job.
    pub fn rows(self, table: Table) -> Result<(), Overdue> {
        self.put(Ok(Answered::Rows(table)))
    }

    /// Abandons the round because training failed. The reason stays on the device.
    ///
    /// # Errors
    /// [`Overdue`] if the round has stopped waiting for this job.
    pub fn fail(self, reason: impl Into<String>) -> Result<(), Overdue> {
        self.put(Err(TrainerError::failed(reason.into())))
    }

    /// Abandons the round because the app does not support the job. The reason stays on the device.
    ///
    /// # Errors
    /// [`Overdue`] if the round has stopped waiting for this job.
    pub fn refuse(self, reason: impl Into<String>) -> Result<(), Overdue> {
        self.put(Err(TrainerError::refused(reason.into())))
    }

    fn put(self, answer: Result<Answered, TrainerError>) -> Result<(), Overdue> {
        let is_taken = self.taken_back.is_taken();
        if self.cancel.is_cancelled() || *is_taken {
            return Err(Overdue);
        }
        // The channel has room for one answer, so sending does not block under the lock.
        self.to.send(answer).map_err(|_| Overdue)
    }
}

/// Whether a job without an answer is issued again: it should pause, and has saved a checkpoint.
pub(in crate::runner) fn rests(job: &TrainingJob) -> bool {
    job.checkpoints.should_pause() && job.checkpoints.has_state()
}
