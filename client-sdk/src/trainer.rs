//! The app's interface: training a model on local data, and evaluating a model on local held-out data.
//!
//! A trainer handles parameters, without access to rounds, networks or peers. It returns the trained parameters. The
//! SDK computes the difference and keeps the personal part and the trainer's input local.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use learning::{Adapters, MetricValue, Parameters, Table};
use task_spec::{Analytics, PERSONAL_PREFIX, TableSpec, TrainingPlan};
use wire::{Digest, Timestamp};

use crate::checkpoints::Checkpoints;

/// Trains and evaluates; implemented by the app, or by the SDK for its ready models (`ModelTrainer`).
///
/// All methods may take as long as they need: they run on their own thread.
pub trait Trainer: Send {
    /// Trains from `model` and returns the result in the same layout.
    ///
    /// # Errors
    /// [`TrainerError`]: the participant then gives up its place in this round, without an update.
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError>;

    /// Trains like [`Self::train`] under constraints, which some personalization methods and SCAFFOLD need. The SDK's
    /// own trainer does; by default a trainer refuses such tasks and takes part in all others.
    ///
    /// # Errors
    /// [`TrainerError`], as for [`Self::train`].
    fn train_within(
        &mut self,
        model: &Parameters,
        job: &TrainingJob,
        constraints: Constraints<'_>,
    ) -> Result<Trained, TrainerError> {
        if constraints.is_empty() {
            return self.train(model, job);
        }
        Err(TrainerError::refused(
            "the task's personalization or solver pulls training towards another model, keeps tensors as they are or corrects \
             gradients: implement `Trainer::train_within`, or take the SDK's own trainer",
        ))
    }

    /// Trains adapters of the frozen model `base`, starting from `start`, and returns them in its layout. The SDK's own
    /// trainer does; by default a trainer refuses tasks with adapters and takes part in all others.
    ///
    /// # Errors
    /// [`TrainerError`], as for [`Self::train`].
    fn train_adapters(
        &mut self,
        base: &Parameters,
        start: &Parameters,
        job: &TrainingJob,
        adapters: &Adapters,
    ) -> Result<Trained, TrainerError> {
        let _ = (base, start, job, adapters);
        Err(TrainerError::refused(
            "the task trains low-rank adapters: implement `Trainer::train_adapters`, or take the SDK's own trainer",
        ))
    }

    /// The base model of shared adapters, if the task names the digest of one that apps provide.
    ///
    /// # Errors
    /// [`TrainerError`], as for [`Self::train`]. Refuses by default.
    fn base_model(&mut self, job: &TrainingJob) -> Result<Parameters, TrainerError> {
        Err(TrainerError::refused(format!(
            "task {:?} trains adapters of a model that apps bring, and this app has none: implement `Trainer::base_model`, \
             or give it to `ModelTrainer::with_base`",
            job.task
        )))
    }

    /// Evaluates `model` on held-out data. Omitted metrics count as not measured.
    ///
    /// # Errors
    /// [`TrainerError`], as for [`Self::train`].
    fn evaluate(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError>;

    /// Evaluates the last version of a finished task for the app only ([`Model::metrics`](crate::Model::metrics)). Default:
    /// [`Self::evaluate`]. `job.round` is the version's number. The call comes under the conditions of a training, after the version
    /// was written to the journal. If the process ends during the call, the app has the version without metrics.
    ///
    /// # Errors
    /// [`TrainerError`]: the app has the version without metrics.
    fn evaluate_last(
        &mut self,
        model: &Parameters,
        job: &TrainingJob,
    ) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        self.evaluate(model, job)
    }

    /// The rows for an analysis (statistics, clusters, trees), with the columns that `job.analytics` names, in that
    /// order. They never leave the device.
    ///
    /// # Errors
    /// [`TrainerError`], as for [`Self::train`]. Refuses by default.
    fn table(&mut self, job: &TrainingJob) -> Result<Cow<'_, Table>, TrainerError> {
        Err(TrainerError::refused(format!("task {:?} is an analysis, and this app has no rows for one", job.task)))
    }

    /// The predictions of `model` for an evaluation (`job.analytics`), one row for each example: the probability of each class, or
    /// the predicted number; the true class or number is the target. They never leave the device.
    ///
    /// # Errors
    /// [`TrainerError`], as for [`Self::train`]. Refuses by default.
    fn predictions(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Table, TrainerError> {
        let _ = model;
        Err(TrainerError::refused(format!(
            "task {:?} evaluates a model, and this app does not predict: implement `Trainer::predictions`, or take the SDK's own trainer",
            job.task
        )))
    }

    /// Current number of training examples or rows; reported to the coordinator at each check-in.
    fn examples(&self) -> u64;

    /// Whether training checks [`Checkpoints::should_pause`] from the start. Otherwise a round is given up when the
    /// device's conditions cease to hold, unless the training has saved a checkpoint by then, or does within
    /// [`Self::pause_grace`]. False by default.
    fn pauses(&self) -> bool {
        false
    }

    /// Time for saving a checkpoint after a pause request. For a trainer whose app trains, and which therefore cannot know whether its
    /// training [pauses](Self::pauses). Default: zero.
    fn pause_grace(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether a round uses the metrics of [`Trained`] not named `train_…` as metrics of the received model. For a trainer whose app
    /// trains and returns its measurements with the result, without a separate evaluation. A task that weighs updates by loss takes
    /// the loss from these metrics. The model that the journal keeps for the app has them in any case
    /// ([`Model::metrics`](crate::Model::metrics)). Default: false.
    fn measures_as_it_trains(&self) -> bool {
        false
    }

    /// The record of another coordinator's version that the last training's result comes from
    /// (`SignedProvenance::sha256`), taken once. It is sent with the update, unmasked, and the next version's record names it. Default:
    /// `None`.
    fn record_below(&mut self) -> Option<Digest> {
        None
    }
}

/// The anchor of [`proximal_mu`](TrainingPlan::proximal_mu), the frozen tensors, and the correction of every gradient.
/// Empty by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Constraints<'a> {
    /// Replaces the initial model as anchor; of the same layout.
    pub anchor: Option<&'a Parameters>,
    /// Whether each tensor, in layout order, is frozen; empty if all are trained.
    pub frozen: &'a [bool],
    /// Added to the gradient of every step (SCAFFOLD's control variates); of the same layout.
    pub correction: Option<&'a Parameters>,
}

impl Constraints<'_> {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.anchor.is_none() && self.correction.is_none() && !self.frozen.contains(&true)
    }
}

/// Purpose of a training. Several trainings of one round, which some methods of personalization need, may differ in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The shared model: the one that was received, or adapters that are shared; where tensors stay on the device, with
    /// these in it. The training's change of the shared part is the update.
    #[default]
    Shared,
    /// The device's own model, or its own part of one. The result stays on the device; with `pfedme` and `elastic` the update follows
    /// from it.
    Own,
}

impl Purpose {
    /// Its name in data.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Own => "own",
        }
    }
}

/// The work of one round, or one training of it.
#[derive(Clone, Debug)]
pub struct TrainingJob {
    pub task: String,
    /// Number of the round, from 1.
    pub round: u32,
    /// Purpose of the training. Without meaning for an analysis or an evaluation.
    pub purpose: Purpose,
    /// The training plan of this round, with factors that depend on the round applied.
    pub plan: TrainingPlan,
    /// The task's description of its model, for trainers that support several.
    pub architecture: Option<serde_json::Value>,
    /// Which columns of their tables devices learn from, if the task names them.
    pub table: Option<TableSpec>,
    /// The analysis, if the task is one: then [`Trainer::table`] is called instead of training.
    pub analytics: Option<Analytics>,
    /// The task's metrics; others are dropped. With a privacy mechanism all of them stay on the device.
    pub metrics: Vec<String>,
    /// Seed for shuffling and the like: repeatable if the participant has a seed, otherwise random.
    pub seed: u64,
    /// Deadline of the round by this device's wall clock; `None` for a job without a deadline.
    pub deadline: Option<Timestamp>,
    /// Set when the job is cancelled.
    pub cancel: Cancel,
    /// Where training leaves its state, to go on after a pause and after the process was killed; by default nowhere.
    pub checkpoints: Checkpoints,
}

#[cfg(test)]
impl TrainingJob {
    /// A job of the first round of a plain task, without checkpoints.
    pub(crate) fn of_test() -> Self {
        Self {
            task: "t".to_owned(),
            round: 1,
            purpose: Purpose::Shared,
            plan: TrainingPlan::default(),
            architecture: None,
            table: None,
            analytics: None,
            metrics: Vec::new(),
            seed: 1,
            deadline: None,
            cancel: Cancel::default(),
            checkpoints: Checkpoints::default(),
        }
    }
}

/// The result of training.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    /// In the layout of the received model.
    pub parameters: Parameters,
    /// Number of training examples, at least 1; the task caps it as the weight.
    pub examples: u64,
    /// Metrics of the training itself, for example `train_loss`.
    pub metrics: Vec<(String, MetricValue)>,
}

impl Trained {
    /// The distance its steps covered, if the trainer reports it with [`REACH`]; above 0 and finite.
    #[must_use]
    pub fn reach(&self) -> Option<f64> {
        let (_, reach) = self.metrics.iter().find(|(name, _)| name == REACH)?;
        reach.measured().filter(|reach| reach.is_finite() && *reach > 0.0)
    }
}

/// The metric for the distance that a trainer's steps cover along a constant gradient of 1, in units of a parameter:
/// for plain gradient descent, the sum of the learning rates ([`learning::contribution::fed_nova::Reach`]). Its count
/// is the number of steps taken. Tasks with FedNova or SCAFFOLD need it; it leaves the device only as these prescribe.
pub const REACH: &str = "train_reach";

/// Prefix of metrics that are about a training, and not about the model that it began with.
const TRAINING_PREFIX: &str = "train_";

/// Whether a metric is of the model that a training began with. Metrics of the training itself and of the device's own
/// model have prefixes.
pub(crate) fn is_of_model(name: &str) -> bool {
    !name.starts_with(TRAINING_PREFIX) && !name.starts_with(PERSONAL_PREFIX)
}

/// Metrics of the model that a training began with: the trainer's evaluation or, if that is empty, the training's
/// metrics of that model.
pub(crate) fn measured_of_model(
    evaluated: &[(String, MetricValue)],
    trained: &[(String, MetricValue)],
) -> Vec<(String, MetricValue)> {
    if !evaluated.is_empty() {
        return evaluated.to_vec();
    }
    trained.iter().filter(|(name, _)| is_of_model(name)).cloned().collect()
}

/// Cancellation flag of a training. Check it between batches.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Makes every clone of this flag report that the training is cancelled.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether to stop: return any error then.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What ends a step before it is complete. Learners with long steps look at it within a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    cancel: Cancel,
    checkpoints: Checkpoints,
    /// Whether a pause ends the step, too. False in the first step of a run, so that each run makes progress.
    may_pause: Arc<AtomicBool>,
}

impl Interrupt {
    pub(crate) fn new(cancel: &Cancel, checkpoints: &Checkpoints) -> Self {
        Self { cancel: cancel.clone(), checkpoints: checkpoints.clone(), may_pause: Arc::default() }
    }

    /// Whether the step should end now.
    pub(crate) fn is_due(&self) -> bool {
        self.cancel.is_cancelled() || (self.may_pause.load(Ordering::Relaxed) && self.checkpoints.should_pause())
    }

    /// From now on, a pause ends a step.
    pub(crate) fn allow_pause(&self) {
        self.may_pause.store(true, Ordering::Relaxed);
    }
}

/// Reasons why a result is missing. The coordinator receives only the kind, one of two.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainerError {
    /// Training or evaluation failed.
    #[error("training failed: {0}")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Training has saved its state and stopped, because [`Checkpoints::should_pause`] said so.
    #[error("training was paused")]
    Paused,
    /// The trainer does not support the job's model or training method.
    #[error("the trainer cannot do this job: {0}")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl TrainerError {
    /// Training or evaluation failed.
    pub fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }

    /// The trainer does not support the job.
    pub fn refused(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Refused(error.into())
    }
}
