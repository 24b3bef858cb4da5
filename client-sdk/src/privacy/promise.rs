//! A task's promise to its participants.

use recipe::device::PrivateRound;
use serde::{Deserialize, Serialize};
use task_spec::{PrivacyMechanism, PrivacyView};

/// The privacy promised to participants; the first promise of a task is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Promise {
    pub(crate) mechanism: PrivacyMechanism,
    pub(crate) noise_multiplier: f64,
    pub(crate) delta: f64,
    /// Planned number of rounds.
    pub(crate) rounds: u32,
    /// The task's budget on epsilon, if meant for observers with knowledge of the members.
    pub(crate) epsilon: Option<f64>,
    /// With a banded matrix: limits on one participant's participations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) participations: Option<Participations>,
}

/// Limits on one participant's participations, for noise correlated along a banded matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Participations {
    /// Maximum number of rounds.
    pub(crate) most: u32,
    /// Minimum distance between two of them, in rounds: the number of bands of the matrix.
    pub(crate) separation: u32,
}

impl Promise {
    /// The promise of a round's terms.
    pub(crate) fn of(round: &PrivateRound) -> Self {
        let PrivateRound { spec, quantizer, .. } = round;
        let is_ours = matches!(spec.against, PrivacyView::CohortKnown | PrivacyView::Server);
        Self {
            mechanism: spec.mechanism,
            // The quantizer was derived from both, so they are present.
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
