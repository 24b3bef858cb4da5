//! The start of a round: a model, or the state of an analysis.

use std::sync::Arc;

use learning::analytics::{AnalyticsError, AnalyticsState, MAX_STATE_BYTES};
use learning::{CheckpointError, Parameters, Update};
use wire::participant::Assignment;

use crate::participant::api::plan_error::PlanError;

/// The published file, read. Clones share it.
#[derive(Clone)]
pub(in crate::participant) enum RoundBase {
    /// The shared part of the model.
    Model(Arc<Parameters>),
    /// The state of an analysis.
    State(Arc<AnalyticsState>),
    /// The base is unnecessary: the update was trained ahead of the round and is in the journal.
    Held,
    /// The update trained ahead, read from the journal.
    Update(Arc<Update>),
}

/// Why a file is not the expected model or state.
#[derive(Debug, thiserror::Error)]
pub(in crate::participant) enum BaseError {
    #[error(transparent)]
    Model(#[from] CheckpointError),
    #[error(transparent)]
    State(#[from] AnalyticsError),
}

/// Checks that an analysis comes without a model or personalization; an evaluation with the whole model.
pub(in crate::participant) fn check_analysis(assignment: &Assignment) -> Result<(), PlanError> {
    let encoding = &assignment.encoding;
    let Some(analytics) = &encoding.analytics else { return Ok(()) };
    let is_evaluation = analytics.is_evaluation();
    if is_evaluation == assignment.model.tensors.is_empty() {
        return Err(PlanError::Analytics("an evaluation must come with a model, and no other analysis may"));
    }
    if !assignment.model.personal.is_empty() || encoding.personalization.is_some() {
        return Err(PlanError::Analytics("it comes with a personal model, which no analysis has"));
    }
    let (claimed, most) = (assignment.base.bytes, MAX_STATE_BYTES as u64);
    if claimed > most { Err(PlanError::ModelBytes { claimed, most }) } else { Ok(()) }
}
