//! Why a recipe cannot be derived.

use learning::parameters::LayoutError;
use learning::partition::PatternError;
use learning::{AdapterError, AnalyticsError, CodecError, FairnessError};

use crate::codec::TermsError;

/// Invalid or incompatible terms.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// The tensors do not form a model.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The patterns of local tensors do not split the model into two parts.
    #[error(transparent)]
    Personal(#[from] PatternError),
    /// A tensor that the personalization method cannot keep local.
    #[error("a pattern of the tensors that stay local {0}")]
    PersonalTensor(String),
    /// The model cannot have these adapters.
    #[error(transparent)]
    Adapters(#[from] AdapterError),
    /// A control variate makes the model too large.
    #[error(transparent)]
    Control(LayoutError),
    /// The analysis is invalid.
    #[error("the analysis cannot be computed: {0}")]
    Analytics(#[from] AnalyticsError),
    /// The encoding lacks headroom for the cohort, so a sum could wrap, or its codec does not fit the model.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The privacy terms are invalid.
    #[error("the terms of privacy cannot be taken: {0}")]
    Privacy(#[from] TermsError),
    /// Updates cannot be weighted by loss.
    #[error("updates cannot be weighed by loss: {0}")]
    Fairness(#[from] FairnessError),
    /// The solver is incompatible with other settings, or its numbers are invalid.
    #[error("the task's solver cannot be followed: {0}")]
    Solver(String),
    /// Weights by loss or steps, and control variates, would reveal more than the privacy terms allow.
    #[error(
        "updates are to be weighed by loss or steps, or to change a control variate, which does not go with terms of privacy"
    )]
    FairAndPrivate,
    /// An analysis with weights; analyses are unweighted.
    #[error("the analysis cannot be computed: updates are to be weighed by loss or steps, and it has none")]
    WeighedAnalysis,
}
