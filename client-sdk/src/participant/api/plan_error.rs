//! Why an assignment or its computation failed.

use learning::{AnalyticsError, CheckpointError, InitError};
use recipe::RecipeError;
use recipe::codec::TermsError;
use recipe::device::pipeline::PipelineError;

use crate::identity::IdentityError;
use crate::participant::checks::size::TooLarge;
use crate::personalize::{LocalError, MethodError};
use crate::trainer::TrainerError;

/// Why an assignment is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// It exceeds the app's limit on memory.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Its computation cannot be derived.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// The privacy terms do not match the encoding or the session.
    #[error("the terms of privacy cannot be taken: {0}")]
    Privacy(#[from] TermsError),
    /// The model cannot be personalized as the task requires.
    #[error(transparent)]
    Personalization(#[from] MethodError),
    /// The codec's output cannot be masked, but the round has secure aggregation.
    #[error("uploads of the task's codec cannot be masked, and the round has secure aggregation")]
    NotSummable,
    /// The cohort is larger than the encoding was proven for.
    #[error("the cohort has {cohort} participants, the encoding has room for {room}")]
    Cohort {
        /// The cohort size in the assignment.
        cohort: u32,
        /// The largest cohort of the encoding.
        room: u32,
    },
    /// The file is larger than the model can be.
    #[error("the model is said to take {claimed} bytes; its tensors take at most {most}")]
    ModelBytes {
        /// The file size in the assignment.
        claimed: u64,
        /// The largest file size for its tensors.
        most: u64,
    },
    /// The session's terms do not follow from the assignment.
    #[error("the session of secure aggregation has another {0} than follows from the assignment")]
    Terms(&'static str),
    /// The weight of an update trained ahead is invalid, or the update is older than the task allows.
    #[error("an update that was trained ahead cannot be taken: {0}")]
    Staleness(&'static str),
    /// The analysis comes with parts of a model.
    #[error("the analysis cannot be computed: {0}")]
    Analytics(&'static str),
    /// The personal tensors cannot be initialized.
    #[error(transparent)]
    Init(#[from] InitError),
}

/// Why the personal tensors cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(in crate::participant) enum PersonalError {
    #[error(transparent)]
    Record(#[from] CheckpointError),
    #[error(transparent)]
    Initial(#[from] InitError),
}

/// Reasons why a computation fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// The task weights by loss, and the trainer's metrics lack it.
    #[error(
        "the task weighs updates by the loss of the received model; return a metric \"loss\" from evaluate, or hand it in with a job of \
         the shared model"
    )]
    NoLoss,
    /// The task's solver needs `train_reach`, and the trainer's metrics lack it.
    #[error(
        "the task's solver asks how far training went; return a metric \"train_reach\" from train, above 0 and finite"
    )]
    NoReach,
    /// The device's rows do not fit the analysis.
    #[error(transparent)]
    Rows(#[from] AnalyticsError),
    /// The model of an evaluation is not the task's.
    #[error("the model to evaluate: {0}")]
    Model(#[from] CheckpointError),
    /// The trainer's result must not be sent.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The training goes on later.
    #[error("training was paused")]
    Paused,
    #[error("the trainer panicked")]
    Panicked,
    /// The input cannot be signed.
    #[error(transparent)]
    Key(#[from] IdentityError),
    /// The computation ran before.
    #[error("the masks of this round have covered an input already, and cover no second one")]
    MasksUsed,
    /// The noise was drawn before.
    #[error("noise was drawn for an update of this round already, and is added to no second one")]
    NoiseUsed,
    /// The input is not masked.
    #[error("the round has secure aggregation, but the update was not masked")]
    NotMasked,
}

impl From<LocalError> for WorkError {
    fn from(error: LocalError) -> Self {
        match error {
            LocalError::Trainer(error) => Self::Trainer(error),
            LocalError::Pipeline(error) => Self::Pipeline(error),
        }
    }
}
