//! Reasons a step is rejected.

use crate::parameters::WrongLength;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// A hyperparameter is out of range.
    #[error("the server optimizer's {key} {problem}")]
    Number {
        /// Name in the task file.
        key: &'static str,
        /// The rule it breaks.
        problem: String,
    },
    /// The state belongs to another optimizer.
    #[error("the state belongs to the optimizer {got}, but the task's is {expected}")]
    OtherOptimizer { expected: &'static str, got: &'static str },
    /// The state belongs to another model.
    #[error("the optimizer's state does not fit the model: {0}")]
    StateLength(WrongLength),
    /// The mean belongs to another model.
    #[error("the mean update does not fit the model: {0}")]
    WrongLength(#[from] WrongLength),
    /// The model or the state would exceed the range of `f32`.
    #[error("parameter {0} would become NaN or infinite; the model is unchanged")]
    NotFinite(usize),
}
