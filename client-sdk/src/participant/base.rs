//! What a round starts from: a model, or the state of an analysis.

use std::sync::Arc;

use learning::analytics::{Analysis, AnalyticsError, AnalyticsSpec, AnalyticsState, MAX_STATE_BYTES};
use learning::{CheckpointError, Layout, Parameters, TensorSpec, Update};
use wire::participant::Assignment;

use super::plan_error::PlanError;

/// The published file, read.
pub(super) enum Base {
    /// The shared part of the model.
    Model(Arc<Parameters>),
    /// What an analysis knows so far.
    State(Box<AnalyticsState>),
    /// None is needed: the update was trained ahead of the round, and is in the journal.
    Held,
    /// That update.
    Update(Box<Update>),
}

/// Why the file is not what it should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum BaseError {
    #[error(transparent)]
    Model(#[from] CheckpointError),
    #[error(transparent)]
    State(#[from] AnalyticsError),
}

/// The analysis that an assignment is about, if it is about none of the participant's models.
pub(super) fn analysis(assignment: &Assignment) -> Result<Option<Arc<Analysis>>, PlanError> {
    let encoding = &assignment.encoding;
    let Some(analytics) = &encoding.analytics else { return Ok(None) };
    let unsound = |problem: String| Err(PlanError::Analytics(problem));
    let has_model = !assignment.model.tensors.is_empty() || !assignment.model.personal.is_empty();
    if has_model || assignment.privacy.is_some() || encoding.personalization.is_some() {
        return unsound(
            "it comes with a model, personal or not, or a privacy mechanism, which no analysis has".to_owned(),
        );
    }
    if assignment.base.bytes > MAX_STATE_BYTES as u64 {
        return Err(PlanError::ModelBytes { claimed: assignment.base.bytes, most: MAX_STATE_BYTES as u64 });
    }
    let analysis =
        AnalyticsSpec::read(analytics).and_then(|spec| Analysis::new(spec, encoding.modulus_bits, encoding.max_cohort));
    analysis.map(|analysis| Some(Arc::new(analysis))).or_else(|error| unsound(error.to_string()))
}

/// The values that an analysis sums, as a layout.
pub(super) fn layout_of_sums(analysis: &Analysis) -> Result<Layout, PlanError> {
    let sums = TensorSpec { name: "sums".to_owned(), shape: vec![analysis.codec().values() as u64] };
    Ok(Layout::new(vec![sums])?)
}
