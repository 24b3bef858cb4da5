//! Why a recipe cannot be derived.

use learning::parameters::LayoutError;
use learning::partition::PatternError;
use learning::{AdapterError, AnalyticsError, CodecError, FairnessError};

use crate::codec::TermsError;

/// What cannot be, or does not go together, in what participants are told.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// The tensors are no model.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The patterns of tensors that stay local do not part the model in two.
    #[error(transparent)]
    Personal(#[from] PatternError),
    /// A tensor that the method of personalization cannot keep local.
    #[error("a pattern of the tensors that stay local {0}")]
    PersonalTensor(String),
    /// The model cannot have such adapters.
    #[error(transparent)]
    Adapters(#[from] AdapterError),
    /// A control variate makes the model too large.
    #[error(transparent)]
    Control(LayoutError),
    /// The analysis cannot be.
    #[error("the analysis cannot be computed: {0}")]
    Analytics(#[from] AnalyticsError),
    /// The encoding leaves no headroom for the cohort, where a sum could wrap, or its codec does not fit the model.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The terms of privacy promise nothing, or something that cannot be kept.
    #[error("the terms of privacy cannot be taken: {0}")]
    Privacy(#[from] TermsError),
    /// Updates cannot be weighed by loss.
    #[error("updates cannot be weighed by loss: {0}")]
    Fairness(#[from] FairnessError),
    /// The solver does not go with the rest, or its numbers cannot be.
    #[error("the task's solver cannot be followed: {0}")]
    Solver(String),
    /// Weights by loss or steps, and control variates, would tell more than the terms of privacy allow.
    #[error(
        "updates are to be weighed by loss or steps, or to change a control variate, which does not go with terms of privacy"
    )]
    FairAndPrivate,
    /// An analysis has nothing that could be weighed.
    #[error("the analysis cannot be computed: updates are to be weighed by loss or steps, and it has none")]
    WeighedAnalysis,
}
