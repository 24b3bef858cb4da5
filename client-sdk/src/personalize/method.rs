//! The interface of personalization methods.

use learning::parameters::LayoutError;

use super::round::{LocalError, LocalResult, LocalRound};

/// Reasons a model cannot be personalized by the task's method.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MethodError {
    /// The stored tensors do not form a valid layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Patterns are missing, or given for a method without any.
    #[error("method {0:?} does not go with the patterns of tensors that stay local")]
    Parts(&'static str),
}

/// A personalization method.
pub(crate) trait Method: Send + Sync {
    /// Runs this device's part of a round.
    fn run(&self, round: &mut LocalRound<'_>) -> Result<LocalResult, LocalError>;
}
