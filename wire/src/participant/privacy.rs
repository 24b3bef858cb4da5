//! Privacy: what a participant is told about the noise before it trains.
//!
//! Both sides derive grid, clipping, noise shares and cost from these numbers by the same code
//! (`learning::privacy::PrivacySpec::request`), so none of them can be told another.

use federation::id::{Attempt, Digest};
use serde::{Deserialize, Serialize};
use task_spec::PrivacySpec;

/// The promise of a task, and what it rests on in this round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrivacyTerms {
    /// As the operator wrote it; `noise_multiplier` is always given.
    pub spec: PrivacySpec,
    /// How many participants a round is expected to have; the mean is over this number.
    pub cohort: u32,
    /// Fewest updates of a released sum: the noise of the participants counts on so many.
    pub smallest_cohort: u32,
    /// How many of those may tell the coordinator their share of the noise.
    pub colluders: u32,
    /// Rounds of the task.
    pub rounds: u32,
    /// L2 norm that updates are scaled down to in this round.
    pub clip: f64,
}

impl PrivacyTerms {
    /// Compact JSON in the order of the fields: what is digested, and what `learning` reads the specification from.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // No map, no key but text: nothing that could fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Seed of the rotation that all updates of an attempt share. It is public: rotating makes coordinates alike, it hides nothing.
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
