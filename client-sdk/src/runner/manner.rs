//! How a job is to be trained, beside what its plan says, or that it is an analysis; and which of it an app can do.

use std::borrow::Cow;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use learning::{Adapters, AnalyticsSpec, Parameters, WrongLayout, checkpoint};

use super::update::UpdateError;
use crate::trainer::{Constraints, Trained, Trainer, TrainerError, TrainingJob};

/// What an app can do beside training a model as a plan says: by default nothing. A job that asks for more is refused before the app gets it.
/// `train_ready` can do what concerns training.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// It heeds the anchor, the frozen tensors and the correction of gradients of a job ([`Manner::Within`]).
    pub within: bool,
    /// It trains adapters of a frozen model ([`Manner::Adapters`]).
    pub adapters: bool,
    /// It answers analyses with its rows ([`Manner::Analysis`]).
    pub analyses: bool,
    /// A safetensors file of the model that apps bring to tasks whose adapters are of one. It is read for each such job.
    pub base_model: Option<PathBuf>,
}

/// What the training of a job has to heed beside its plan.
#[derive(Clone, Debug, Default)]
pub enum Manner {
    /// Nothing: a model is trained as the plan says.
    #[default]
    Free,
    /// Constraints, at least one of them: those of [`Constraints`], which the job owns.
    Within {
        /// What [`proximal_mu`](task_spec::TrainingPlan::proximal_mu) pulls towards, instead of the model that the job begins with; of
        /// the same layout.
        anchor: Option<Parameters>,
        /// Whether each tensor, in layout order, stays as it is; empty if none does.
        frozen: Vec<bool>,
        /// Added to the gradient of every step (SCAFFOLD's control variates); of the same layout.
        correction: Option<Parameters>,
    },
    /// The job's parameters are adapters of a model that stays as it is.
    Adapters {
        /// The frozen model.
        base: Parameters,
        /// Where the adapters are, and what a model with them is ([`Adapters::merge`]).
        adapters: Adapters,
    },
    /// Nothing is trained, and the job's parameters are none: an analysis asks for rows
    /// ([`Answer::rows`](super::Answer::rows)), whose columns are those that it names, in that order.
    Analysis(AnalyticsSpec),
}

impl Abilities {
    /// A training within constraints, if there are any.
    pub(super) fn manner_within(&self, constraints: Constraints<'_>) -> Result<Manner, TrainerError> {
        if constraints.is_empty() {
            return Ok(Manner::Free);
        }
        if !self.within {
            return Err(TrainerError::refused(
                "the task's personalization or solver pulls training towards another model, keeps tensors as they are or corrects \
                 gradients, and this app does not say that its training heeds that (option `trains_within`)",
            ));
        }
        let Constraints { anchor, frozen, correction } = constraints;
        Ok(Manner::Within { anchor: anchor.cloned(), frozen: frozen.to_vec(), correction: correction.cloned() })
    }

    /// A training of adapters.
    pub(super) fn manner_of_adapters(&self, base: &Parameters, adapters: &Adapters) -> Result<Manner, TrainerError> {
        if !self.adapters {
            return Err(TrainerError::refused(
                "the task trains low-rank adapters, and this app does not say that its training does (option `trains_adapters`)",
            ));
        }
        Ok(Manner::Adapters { base: base.clone(), adapters: adapters.clone() })
    }

    /// An analysis of the app's rows.
    pub(super) fn manner_of_analysis(&self, job: &TrainingJob) -> Result<Manner, TrainerError> {
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
        AnalyticsSpec::read(words).map(Manner::Analysis).map_err(TrainerError::refused)
    }

    /// The model that the app brings.
    pub(super) fn base_model(&self, job: &TrainingJob) -> Result<Parameters, TrainerError> {
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

impl Manner {
    /// What the proximal term pulls towards, if not the model that the job begins with.
    #[must_use]
    pub fn anchor(&self) -> Option<&Parameters> {
        match self {
            Self::Within { anchor, .. } => anchor.as_ref(),
            Self::Free | Self::Adapters { .. } | Self::Analysis(_) => None,
        }
    }

    /// Whether the tensor of this number, in layout order, stays as it is.
    #[must_use]
    pub fn is_frozen(&self, tensor: usize) -> bool {
        match self {
            Self::Within { frozen, .. } => frozen.get(tensor).copied().unwrap_or_default(),
            Self::Free | Self::Adapters { .. } | Self::Analysis(_) => false,
        }
    }

    /// What is added to the gradient of every step, if anything.
    #[must_use]
    pub fn correction(&self) -> Option<&Parameters> {
        match self {
            Self::Within { correction, .. } => correction.as_ref(),
            Self::Free | Self::Adapters { .. } | Self::Analysis(_) => None,
        }
    }

    /// The frozen model whose adapters the job's parameters are, if they are, and the adapters.
    #[must_use]
    pub fn base(&self) -> Option<(&Parameters, &Adapters)> {
        match self {
            Self::Adapters { base, adapters } => Some((base, adapters)),
            Self::Free | Self::Within { .. } | Self::Analysis(_) => None,
        }
    }

    /// The analysis that the job is, if it is one.
    #[must_use]
    pub fn analysis(&self) -> Option<&AnalyticsSpec> {
        match self {
            Self::Analysis(analysis) => Some(analysis),
            Self::Free | Self::Within { .. } | Self::Adapters { .. } => None,
        }
    }

    /// The model that a job begins with: its parameters, or these as adapters beside their base.
    ///
    /// # Errors
    /// [`WrongLayout`] if the parameters are not the job's.
    pub fn model<'a>(&self, parameters: &'a Parameters) -> Result<Cow<'a, Parameters>, WrongLayout> {
        match self {
            Self::Adapters { base, adapters } => adapters.merge(base, parameters).map(Cow::Owned),
            Self::Free | Self::Within { .. } | Self::Analysis(_) => Ok(Cow::Borrowed(parameters)),
        }
    }

    /// Has `trainer` train like this.
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
