//! What an app implements: train a model on its own data, and say how good a model is on its own held-out data.
//!
//! A trainer sees parameters and nothing of rounds, networks or peers. It returns the trained parameters; the SDK takes
//! the difference, keeps the personal part at home and never sends what it was given.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use learning::{Adapters, MetricValue, Parameters, Table};
use task_spec::{Analytics, TrainingPlan};

use crate::train::Constraints;

/// Trains and evaluates; implemented by the app or taken ready-made from [`crate::train`].
///
/// Both methods may take as long as they need: they run on a thread of their own.
pub trait Trainer: Send {
    /// Trains, starting from `model`, and returns the result in the same layout.
    ///
    /// # Errors
    /// [`TrainerError`]: the participant gives up its place in this round; nothing is sent.
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError>;

    /// Trains like [`Self::train`] within constraints, as some methods of personalization and the solver SCAFFOLD need it. The SDK's own trainer
    /// does; one that does not say how refuses such tasks, and takes part in all others.
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

    /// Trains adapters of `base`, which stays as it is, beginning with `start`, and returns them in its layout. The SDK's own
    /// trainer does; one that does not say how refuses tasks with adapters, and takes part in all others.
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

    /// The model that shared adapters stand beside, where the task names the digest of one that apps bring.
    ///
    /// # Errors
    /// [`TrainerError`], as for [`Self::train`]. Unless an app has one and says so, it refuses.
    fn base_model(&mut self, job: &TrainingJob) -> Result<Parameters, TrainerError> {
        Err(TrainerError::refused(format!(
            "task {:?} trains adapters of a model that apps bring, and this app has none: implement `Trainer::base_model`, \
             or give it to `CandleTrainer::with_base`",
            job.task
        )))
    }

    /// Measures `model` on held-out data. What is left out counts as not measured.
    ///
    /// # Errors
    /// [`TrainerError`], as for [`Self::train`].
    fn evaluate(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError>;

    /// The rows that an analysis (statistics, clusters, trees) adds up on this device, in the order of the columns that
    /// `job.analytics` names. They never leave it.
    ///
    /// # Errors
    /// [`TrainerError`], as for [`Self::train`]. Unless an app has rows and says so, it refuses.
    fn table(&mut self, job: &TrainingJob) -> Result<Cow<'_, Table>, TrainerError> {
        Err(TrainerError::refused(format!("task {:?} is an analysis, and this app has no rows for one", job.task)))
    }

    /// Training examples, or rows, there are now; told to the coordinator at each check-in.
    fn examples(&self) -> u64;
}

/// The task's wishes for one round.
#[derive(Clone, Debug)]
pub struct TrainingJob {
    /// The task's name.
    pub task: String,
    /// The round's number, from 1.
    pub round: u32,
    /// How to train in this round: what changes from round to round has been worked into its numbers.
    pub plan: TrainingPlan,
    /// The task's description of its model, for trainers that bring several.
    pub architecture: Option<serde_json::Value>,
    /// What to compute, where the task is an analysis: then [`Trainer::table`] is asked, and nothing is trained.
    pub analytics: Option<Analytics>,
    /// The metrics the task names; others are dropped. With a privacy mechanism all of them stay on the device.
    pub metrics: Vec<String>,
    /// For shuffling and the like: repeatable if the participant has a seed, else drawn afresh.
    pub seed: u64,
    /// Set when nobody waits for the result any more.
    pub cancel: Cancel,
}

/// What training yields.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    /// In the layout of the model that was given.
    pub parameters: Parameters,
    /// Examples that were trained on, at least 1; the task caps what they weigh.
    pub examples: u64,
    /// Metrics of the training itself, for example `train_loss`.
    pub metrics: Vec<(String, MetricValue)>,
}

impl Trained {
    /// How far the steps went, if the trainer says so by [`REACH`]; above 0 and finite.
    #[must_use]
    pub fn reach(&self) -> Option<f64> {
        let (_, reach) = self.metrics.iter().find(|(name, _)| name == REACH)?;
        reach.measured().filter(|reach| reach.is_finite() && *reach > 0.0)
    }
}

/// The metric by which a trainer says how far its steps go along a constant gradient of 1, in units of a parameter: the sum of
/// the learning rates for plain gradient descent ([`learning::contribution::fed_nova::Reach`]). Its count is the number of
/// steps really taken. Tasks whose solver is FedNova or SCAFFOLD need it; it leaves the device only as they say.
pub const REACH: &str = "train_reach";

/// Tells a trainer that it may stop: look at it between batches.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Nobody waits any more.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether to stop: return any error then.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why there is nothing to contribute. A local matter: the coordinator learns no more than which of the two it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainerError {
    /// Training or evaluation went wrong.
    #[error("training failed: {0}")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The job asks for a model or a way of training that this trainer does not know.
    #[error("the trainer cannot do this job: {0}")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl TrainerError {
    /// Training or evaluation went wrong.
    pub fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }

    /// The job cannot be done here.
    pub fn refused(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Refused(error.into())
    }
}
