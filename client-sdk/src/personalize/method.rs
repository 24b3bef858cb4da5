//! What every way to personalize is.

use learning::AdapterError;
use learning::parameters::LayoutError;
use learning::partition::PatternError;

use super::round::{Local, LocalError, Round};

/// Why a model cannot be personalized as the task says.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MethodError {
    /// The personal patterns do not part it.
    #[error(transparent)]
    Patterns(#[from] PatternError),
    /// Its layers cannot have such adapters.
    #[error(transparent)]
    Adapters(#[from] AdapterError),
    /// The tensors kept are no model.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A tensor that the method cannot keep.
    #[error("a pattern of the tensors that stay local {0}")]
    Tensor(String),
    /// Patterns where the method needs none, or none where it needs some.
    #[error("method {0:?} does not go with the patterns of tensors that stay local")]
    Parts(&'static str),
}

/// One way to personalize a model.
pub(crate) trait Method: Send + Sync {
    /// What this device does in a round.
    fn run(&self, round: &mut Round<'_>) -> Result<Local, LocalError>;
}
