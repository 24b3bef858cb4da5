//! What every way to personalize is.

use learning::parameters::LayoutError;

use super::round::{Local, LocalError, Round};

/// Why a model cannot be personalized as the task says.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MethodError {
    /// The tensors kept are no model.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Patterns where the method needs none, or none where it needs some.
    #[error("method {0:?} does not go with the patterns of tensors that stay local")]
    Parts(&'static str),
}

/// One way to personalize a model.
pub(crate) trait Method: Send + Sync {
    /// What this device does in a round.
    fn run(&self, round: &mut Round<'_>) -> Result<Local, LocalError>;
}
