//! The demo's output for programs: one JSON object per event. Changes only add fields.

use std::collections::BTreeMap;
use std::path::PathBuf;

use task_spec::Personalization;
use wire::inspect::{
    CompressionView, DistributionView, EpsilonView, GroupView, ModelVersionRef, PrivacyReport, Protection, RoundView,
    SessionView, SumWorkView,
};
use wire::{AssignmentState, Digest, FailureReason, RoundState};

use super::personal::MethodAccuracy;
use crate::command::model::Score;

/// The federation is set up.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Started {
    pub(super) url: String,
    pub(super) participants: u32,
    pub(super) rounds: u32,
    pub(super) data: String,
    pub(super) model: &'static str,
    pub(super) parameters: u64,
    pub(super) seed: u64,
    /// The parties that can read updates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) protection: Option<Protection>,
    /// The task's privacy promise, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) privacy: Option<PrivacyReport>,
    /// The personalization method, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) personalization: Option<Personalization>,
}

/// An attempt at a round has ended.
///
/// A line of its own rather than a [`RoundView`], for scripts read it: it has the demo's score where that has the cohort's
/// means, seconds where that has times, and does not change when the API does. [`RoundEvent::new`] is the one translation.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct RoundEvent {
    pub(super) number: u32,
    pub(super) attempt: u32,
    pub(super) state: RoundState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<FailureReason>,
    pub(super) cohort: u32,
    pub(super) reported: u32,
    pub(super) dropped: u32,
    pub(super) dropped_why: BTreeMap<AssignmentState, u32>,
    /// Dropouts by phase; an update that was accepted before its participant dropped out is in the sum.
    pub(super) dropped_in: BTreeMap<RoundState, u32>,
    /// The participants in the sum, and the participants that opened it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) secure_aggregation: Option<SessionView>,
    /// The groups of a divided cohort, with their anomaly scores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) groups: Vec<GroupView>,
    /// How the sum was computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) work: Option<SumWorkView>,
    /// Accuracy of the published model on the demo's held-out data; `None` if the round did not publish one.
    pub(super) metrics: Option<Score>,
    /// Weighted means of the cohort's metrics: the received model on each member's held-out data, and its training.
    pub(super) cohort_metrics: BTreeMap<String, f64>,
    /// Quantiles over the cohort, with personalization.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) distributions: BTreeMap<String, DistributionView>,
    /// Privacy spent after this round; `None` without a mechanism, or before the first release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) epsilon: Option<EpsilonView>,
    /// Size and distortion of compressed updates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) compression: Option<CompressionView>,
    pub(super) model: Option<ModelVersionRef>,
    pub(super) bytes_up: u64,
    pub(super) bytes_down: u64,
    pub(super) seconds: f64,
    /// Seconds in each phase.
    pub(super) phases: BTreeMap<&'static str, f64>,
}

impl RoundEvent {
    pub(super) fn new(round: RoundView, metrics: Option<Score>) -> Self {
        Self {
            phases: phase_seconds(&round),
            number: round.number,
            attempt: round.attempt,
            state: round.state,
            failure: round.failure,
            cohort: round.cohort,
            reported: round.reported,
            dropped: round.dropped,
            dropped_why: round.dropped_why,
            dropped_in: round.dropped_in,
            secure_aggregation: round.secure_aggregation,
            groups: round.groups,
            work: round.work,
            metrics,
            cohort_metrics: round.metrics.into_iter().map(|(name, metric)| (name, metric.value)).collect(),
            distributions: round.distributions,
            epsilon: round.epsilon,
            compression: round.compression,
            model: round.model,
            bytes_up: round.bytes_up,
            bytes_down: round.bytes_down,
            seconds: round.seconds,
        }
    }
}

/// Duration of each phase.
fn phase_seconds(round: &RoundView) -> BTreeMap<&'static str, f64> {
    let name = |state| match state {
        RoundState::Selecting => Some("selecting"),
        RoundState::Sharing => Some("sharing"),
        RoundState::Collecting => Some("collecting"),
        RoundState::Confirming => Some("confirming"),
        RoundState::Unmasking => Some("unmasking"),
        RoundState::Aggregating => Some("aggregating"),
        RoundState::Completed | RoundState::Failed | RoundState::Cancelled => None,
    };
    let took = |phase: &wire::inspect::PhaseView| Some(phase.ended_at?.since(phase.started_at).as_secs_f64());
    round.phases.iter().filter_map(|phase| Some((name(phase.state)?, took(phase)?))).collect()
}

/// All rounds are over.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Finished {
    pub(super) rounds: u32,
    pub(super) accuracy: f64,
    pub(super) loss: f64,
    /// Size and distortion of compressed updates in the last round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) compression: Option<CompressionView>,
    pub(super) model: ModelFile,
    pub(super) seconds: f64,
    /// The privacy report of a private task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) privacy: Option<Spent>,
    /// The same model trained on the pooled data, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) centralized: Option<Score>,
    /// Accuracy per participant of the shared model, the personalized one and one trained alone, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) personalization: Option<Personalized>,
}

/// Accuracy over participants, each on its own held-out data.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Personalized {
    pub(super) served: Vec<MethodAccuracy>,
}

/// State of the privacy ledger.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Spent {
    pub(super) epsilon: EpsilonView,
    pub(super) delta: f64,
    /// The most that epsilon may reach; absent if spending is only counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) budget: Option<f64>,
    pub(super) noise_multiplier: Option<f64>,
    /// The clipping norm of the next round.
    pub(super) clip: f64,
}

impl Spent {
    pub(super) fn of(report: &PrivacyReport) -> Self {
        Self {
            epsilon: report.spent.clone(),
            delta: report.spec.delta.unwrap_or_default(),
            budget: report.spec.epsilon,
            noise_multiplier: report.spec.noise_multiplier,
            clip: report.clip,
        }
    }
}

/// A model file on this machine.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct ModelFile {
    pub(super) path: PathBuf,
    pub(super) sha256: Digest,
}
