//! Job constraints, and the app's capabilities.

use std::borrow::Cow;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use learning::{Adapters, AnalyticsSpec, Parameters, WrongLayout, checkpoint};

use super::update::UpdateError;
use crate::trainer::{Constraints, Trained, Trainer, TrainerError, TrainingJob};

/// The app's capabilities beyond training by a plan; empty by default. A job with other requirements is refused before
/// the app gets it. `train_ready` supports all of the training requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Supports anchors, frozen tensors and gradient corrections ([`JobConstraints::Within`]).
    pub within: bool,
    /// Supports adapters of a frozen model ([`JobConstraints::Adapters`]).
    pub adapters: bool,
    /// Answers analyses with rows ([`JobConstraints::Analysis`]).
    pub analyses: bool,
    /// Safetensors file of the base model, for tasks with adapters of a model that apps provide. It is read for each
    /// such job.
    pub base_model: Option<PathBuf>,
}

/// Requirements of a job beyond its plan.
#[derive(Clone, Debug, Default)]
pub enum JobConstraints {
    /// Train a model by the plan, without constraints.
    #[default]
    Free,
    /// At least one constraint: an owned form of [`Constraints`].
    Within {
        /// Anchor of [`proximal_mu`](task_spec::TrainingPlan::proximal_mu), instead of the initial model; in the same
        /// layout.
        anchor: Option<Parameters>,
        /// Whether each tensor, in layout order, is frozen; empty if all are trained.
        frozen: Vec<bool>,
        /// Correction added to the gradient of every step (SCAFFOLD's control variates), in the same layout.
        correction: Option<Parameters>,
    },
    /// The job's parameters are adapters of a frozen model.
    Adapters {
        /// The frozen model.
        base: Parameters,
        /// The positions of the adapters, and the computation of the adapted model ([`Adapters::merge`]).
        adapters: Adapters,
    },
    /// The parameters are empty, except those of an evaluation, whose rows are their predictions: an analysis requests rows ([`Answer::rows`](crate::runner::Answer::rows)) with its
    /// columns, in its order.
    Analysis(AnalyticsSpec),
}

impl Capabilities {
    /// A training, with constraints if there are any.
    pub(in crate::runner) fn manner_within(
        &self,
        constraints: Constraints<'_>,
    ) -> Result<JobConstraints, TrainerError> {
        if constraints.is_empty() {
            return Ok(JobConstraints::Free);
        }
        if !self.within {
            return Err(TrainerError::refused(
                "the task's personalization or solver pulls training towards another model, keeps tensors as they are or corrects \
                 gradients, and this app does not say that its training heeds that (option `trains_within`)",
            ));
        }
        let Constraints { anchor, frozen, correction } = constraints;
        Ok(JobConstraints::Within { anchor: anchor.cloned(), frozen: frozen.to_vec(), correction: correction.cloned() })
    }

    /// A training of adapters.
    pub(in crate::runner) fn manner_of_adapters(
        &self,
        base: &Parameters,
        adapters: &Adapters,
    ) -> Result<JobConstraints, TrainerError> {
        if !self.adapters {
            return Err(TrainerError::refused(
                "the task trains low-rank adapters, and this app does not say that its training does (option `trains_adapters`)",
            ));
        }
        Ok(JobConstraints::Adapters { base: base.clone(), adapters: adapters.clone() })
    }

    /// An analysis of the app's rows.
    pub(in crate::runner) fn manner_of_analysis(&self, job: &TrainingJob) -> Result<JobConstraints, TrainerError> {
        let TrainingJob { task, analytics, .. } = job;
        if !self.analyses {
            return Err(TrainerError::refused(format!(
                "task {task:?} is an analysis, and this app does not say that it gives rows for one (option \
                 `answers_analyses`)"
            )));
        }
        let Some(words) = analytics else {
            return Err(TrainerError::failed(format!("task {task:?} does not say what its analysis is")));
        };
        AnalyticsSpec::read(words).map(JobConstraints::Analysis).map_err(TrainerError::refused)
    }

    /// The base model that the app provides.
    pub(in crate::runner) fn base_model(&self, job: &TrainingJob) -> Result<Parameters, TrainerError> {
        match &self.base_model {
            Some(file) => read(file).map_err(TrainerError::failed),
            None => Err(TrainerError::refused(format!(
                "task {:?} trains adapters of a model that apps bring, and this app names none (option `base_model`)",
                job.task
            ))),
        }
    }
}

fn read(file: &Path) -> Result<Parameters, Box<dyn Error + Send + Sync>> {
    let bytes = std::fs::read(file).map_err(|error| format!("the base model in {}: {error}", file.display()))?;
    let layout = Arc::new(checkpoint::read_layout(&bytes)?);
    Ok(checkpoint::read(&bytes, &layout)?)
}

impl JobConstraints {
    /// The anchor of the proximal term, if it is not the initial model.
    #[must_use]
    pub fn anchor(&self) -> Option<&Parameters> {
        match self {
            Self::Within { anchor, .. } => anchor.as_ref(),
            Self::Free | Self::Adapters { .. } | Self::Analysis(_) => None,
        }
    }

    /// Whether the tensor with this index, in layout order, is frozen.
    #[must_use]
    pub fn is_frozen(&self, tensor: usize) -> bool {
        match self {
            Self::Within { frozen, .. } => frozen.get(tensor).copied().unwrap_or_default(),
            Self::Free | Self::Adapters { .. } | Self::Analysis(_) => false,
        }
    }

    /// The correction of the gradient of every step, if any.
    #[must_use]
    pub fn correction(&self) -> Option<&Parameters> {
        match self {
            Self::Within { correction, .. } => correction.as_ref(),
            Self::Free | Self::Adapters { .. } | Self::Analysis(_) => None,
        }
    }

    /// The frozen model and the adapters, if the job's parameters are adapters.
    #[must_use]
    pub fn base(&self) -> Option<(&Parameters, &Adapters)> {
        match self {
            Self::Adapters { base, adapters } => Some((base, adapters)),
            Self::Free | Self::Within { .. } | Self::Analysis(_) => None,
        }
    }

    /// The analysis, if the job is one.
    #[must_use]
    pub fn analysis(&self) -> Option<&AnalyticsSpec> {
        match self {
            Self::Analysis(analysis) => Some(analysis),
            Self::Free | Self::Within { .. } | Self::Adapters { .. } => None,
        }
    }

    /// The initial model of a job: its parameters, or its adapters with their base.
    ///
    /// # Errors
    /// [`WrongLayout`] if the parameters are not the job's.
    pub fn model<'a>(&self, parameters: &'a Parameters) -> Result<Cow<'a, Parameters>, WrongLayout> {
        match self {
            Self::Adapters { base, adapters } => adapters.merge(base, parameters).map(Cow::Owned),
            Self::Free | Self::Within { .. } | Self::Analysis(_) => Ok(Cow::Borrowed(parameters)),
        }
    }

    /// Trains with these constraints, by `trainer`.
    ///
    /// # Errors
    /// [`TrainerError`], as for [`Trainer::train`].
    pub fn train(
        &self,
        trainer: &mut dyn Trainer,
        parameters: &Parameters,
        job: &TrainingJob,
    ) -> Result<Trained, TrainerError> {
        match self {
            Self::Free => trainer.train(parameters, job),
            Self::Within { anchor, frozen, correction } => {
                let constraints = Constraints { anchor: anchor.as_ref(), frozen, correction: correction.as_ref() };
                trainer.train_within(parameters, job, constraints)
            }
            Self::Adapters { base, adapters } => trainer.train_adapters(base, parameters, job, adapters),
            Self::Analysis(_) => Err(TrainerError::refused(UpdateError::Analysis)),
        }
    }
}
