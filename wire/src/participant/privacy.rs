//! Privacy terms that a participant receives before it trains.
//!
//! Both sides derive grid, clipping, noise shares and cost from these numbers with the same code
//! (`learning::privacy::PrivacySpec::request`), so they cannot disagree.

use federation::id::{Attempt, Digest};
use serde::{Deserialize, Serialize};
use task_spec::PrivacySpec;

/// The privacy guarantee of a task, and its parameters in this round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrivacyTerms {
    /// As the operator wrote it; `noise_multiplier` is always set.
    pub spec: PrivacySpec,
    /// Expected number of participants per round, the denominator of the mean.
    pub cohort: u32,
    /// Fewest updates in a released sum, which the participants' noise assumes.
    pub smallest_cohort: u32,
    /// Number of them that may reveal their share of the noise to the coordinator.
    pub colluders: u32,
    /// Rounds of the task.
    pub rounds: u32,
    /// Bound on the L2 norm of updates in this round.
    pub clip: f64,
}

impl PrivacyTerms {
    /// Compact JSON in field order: the bytes that are hashed, and that `learning` reads the specification from.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // No maps and only string keys: serialization cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Seed of the rotation that all updates of an attempt share. It is public, since the rotation hides nothing.
///
/// `SHA-256("tributary/rotation/1" || task || u32be(round) || u32be(attempt))`.
#[must_use]
pub fn rotation_seed(attempt: Attempt) -> Digest {
    let mut text = b"tributary/rotation/1".to_vec();
    text.extend(attempt.task.0.as_bytes());
    text.extend(attempt.round.to_be_bytes());
    text.extend(attempt.attempt.to_be_bytes());
    let mut digest = Digest([0; 32]);
    digest.0.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, &text).as_ref());
    digest
}
