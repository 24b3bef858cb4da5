//! Why a step cannot be taken.

use crate::parameters::WrongLength;

/// Why a step cannot be taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// A number with which no model learns.
    #[error("the server optimizer's {key} {problem}")]
    Number {
        /// In the task file.
        key: &'static str,
        /// What it must be.
        problem: String,
    },
    /// The memory of another optimizer.
    #[error("the state belongs to the optimizer {got}, but the task's is {expected}")]
    OtherOptimizer {
        /// The task's.
        expected: &'static str,
        /// The state's.
        got: &'static str,
    },
    /// The memory of another model.
    #[error("the optimizer's state does not fit the model: {0}")]
    StateLength(WrongLength),
    /// A mean of another model.
    #[error("the mean update does not fit the model: {0}")]
    WrongLength(#[from] WrongLength),
    /// The model or the optimizer's state would leave the range of `f32`.
    #[error("parameter {0} would become NaN or infinite; the model is left as it was")]
    NotFinite(usize),
}
