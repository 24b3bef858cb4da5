//! What a task promises to those who take part in it.

use recipe::device::PrivateRound;
use serde::{Deserialize, Serialize};
use task_spec::{PrivacyMechanism, PrivacyView};

/// What is promised to those who take part; what was promised first is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Promise {
    pub(crate) mechanism: PrivacyMechanism,
    pub(crate) noise_multiplier: f64,
    pub(crate) delta: f64,
    /// For how many rounds it was planned.
    pub(crate) rounds: u32,
    /// The task's budget, where it is meant for those who know who took part.
    pub(crate) epsilon: Option<f64>,
    /// With a banded matrix: how often one participant takes part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) participations: Option<Participations>,
}

/// How often one participant takes part where noise is correlated along a banded matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Participations {
    /// In how many rounds, at most.
    pub(crate) most: u32,
    /// How many rounds from one to the next, at least: as many as the matrix has bands.
    pub(crate) separation: u32,
}

impl Promise {
    /// What the terms of a round promise.
    pub(crate) fn of(round: &PrivateRound) -> Self {
        let PrivateRound { spec, quantizer, .. } = round;
        let is_ours = matches!(spec.against, PrivacyView::CohortKnown | PrivacyView::Server);
        Self {
            mechanism: spec.mechanism,
            // The grid is derived from both, so they are given.
            noise_multiplier: spec.noise_multiplier.unwrap_or_default(),
            delta: quantizer.request.delta,
            rounds: quantizer.request.rounds,
            epsilon: spec.epsilon.filter(|_| is_ours),
            participations: (spec.mechanism == PrivacyMechanism::BandedMatrix).then(|| Participations {
                most: quantizer.request.participations.unwrap_or(quantizer.request.rounds),
                separation: quantizer.request.bands(),
            }),
        }
    }
}
