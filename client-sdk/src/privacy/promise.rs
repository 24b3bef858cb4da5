//! A task's promise to its participants.

use learning::privacy::PlanRequest;
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
    /// With a banded matrix or counted participations: limits on one participant's participations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) participations: Option<Participations>,
}

/// Limits on one participant's participations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Participations {
    /// Maximum number of rounds.
    pub(crate) most: u32,
    /// Minimum distance between two of them, in rounds: the number of bands of a matrix.
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
            participations: Participations::of(&quantizer.request),
        }
    }
}

impl Participations {
    /// The limits that the charge for a round relies on, if any.
    fn of(request: &PlanRequest) -> Option<Self> {
        match request.mechanism {
            PrivacyMechanism::BandedMatrix => {
                Some(Self { most: request.participations.unwrap_or(request.rounds), separation: request.bands() })
            }
            PrivacyMechanism::DistributedDiscreteGaussian | PrivacyMechanism::DistributedSkellam => {
                Some(Self { most: request.participations?, separation: request.separation.unwrap_or(1) })
            }
            PrivacyMechanism::None
            | PrivacyMechanism::CentralGaussian
            | PrivacyMechanism::Tree
            | PrivacyMechanism::Local => None,
        }
    }
}
