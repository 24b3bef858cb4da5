//! Why an assignment or a piece of work is given up.

use learning::{AnalyticsError, CheckpointError, InitError};
use recipe::RecipeError;
use recipe::codec::TermsError;
use recipe::device::pipeline::PipelineError;

use super::size::TooLarge;
use crate::identity::IdentityError;
use crate::personalize::{LocalError, MethodError};
use crate::trainer::TrainerError;

/// Why an assignment cannot be followed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// It takes more memory than the app allows.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// What follows from it cannot be computed, or is not what a device takes.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// The terms of privacy are not what the encoding and the session say.
    #[error("the terms of privacy cannot be taken: {0}")]
    Privacy(#[from] TermsError),
    /// It cannot be personalized as the task says.
    #[error(transparent)]
    Personalization(#[from] MethodError),
    /// What the codec yields cannot be masked, and the round has secure aggregation.
    #[error("uploads of the task's codec cannot be masked, and the round has secure aggregation")]
    NotSummable,
    /// The cohort is larger than the encoding was proven for.
    #[error("the cohort has {cohort} participants, the encoding has room for {room}")]
    Cohort {
        /// What the assignment says.
        cohort: u32,
        /// What the encoding allows.
        room: u32,
    },
    /// The file is larger than the model can be.
    #[error("the model is said to take {claimed} bytes; its tensors take at most {most}")]
    ModelBytes {
        /// What the assignment says.
        claimed: u64,
        /// What its tensors can take.
        most: u64,
    },
    /// The session was agreed on for other updates than this assignment's.
    #[error("the session of secure aggregation has another {0} than follows from the assignment")]
    Terms(&'static str),
    /// What an update counts for that was trained ahead makes no sense, or the update is older than the task allows.
    #[error("an update that was trained ahead cannot be taken: {0}")]
    Staleness(&'static str),
    /// The analysis comes with what no analysis has.
    #[error("the analysis cannot be computed: {0}")]
    Analytics(&'static str),
    /// The personal part cannot begin.
    #[error(transparent)]
    Init(#[from] InitError),
}

/// Why the personal tensors cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum PersonalError {
    #[error(transparent)]
    Record(#[from] CheckpointError),
    #[error(transparent)]
    Initial(#[from] InitError),
}

/// Why there is nothing to send.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The trainer said so.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// The task weighs by loss, and there is none.
    #[error("the task weighs updates by the loss of the received model; return a metric \"loss\" from evaluate")]
    NoLoss,
    /// The task's solver asks how far the steps went, and it is not said.
    #[error(
        "the task's solver asks how far training went; return a metric \"train_reach\" from train, above 0 and finite"
    )]
    NoReach,
    /// The rows of this device are none for the analysis.
    #[error(transparent)]
    Rows(#[from] AnalyticsError),
    /// What the trainer yielded must not be sent.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The trainer panicked.
    #[error("the trainer panicked")]
    Panicked,
    /// The input cannot be signed.
    #[error(transparent)]
    Key(#[from] IdentityError),
    /// The work was done before.
    #[error("the masks of this round have covered an input already, and cover no second one")]
    MasksUsed,
    /// The same, where noise is concerned.
    #[error("noise was drawn for an update of this round already, and is added to no second one")]
    NoiseUsed,
    /// What came out is not masked.
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
