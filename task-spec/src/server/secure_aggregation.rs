//! `[secure_aggregation]` of a task: whether and how updates are hidden from the coordinator.

use serde::{Deserialize, Serialize};

/// Secure aggregation; on by default. The coordinator derives the thresholds from these numbers and the cohort size;
/// every participant recomputes them and refuses weaker ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecureAggregationSpec {
    /// If false, the operator of the coordinator can read every update.
    pub enabled: bool,
    /// Fewest participants with which a session starts, 3 to 1024; see
    /// [`TaskSpec::session_min`](crate::TaskSpec::session_min).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_cohort: Option<u32>,
    /// T: the fewest members of the fixed batch that each participant must belong to, at least 3. Updates of a batch are
    /// only opened together, in every round of every task, so sums of different rounds reveal nothing about fewer than T
    /// participants. Default: no batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u32>,
    /// γ: the share of the cohort that may collude with the coordinator without learning more than the sum, 0 to 0.5.
    pub max_corrupt_fraction: f64,
    /// δ: the share of the cohort that may drop out without failing the round, below 1.
    pub max_dropout_fraction: f64,
    /// Overrides `aggregation.modulus_bits`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modulus_bits: Option<u8>,
    /// Overrides `aggregation.clip_range`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_range: Option<f32>,
    /// Time for participants to deal key shares.
    pub share_deadline_ms: u64,
    /// Time for the included participants to sign the set of included inputs.
    pub confirm_deadline_ms: u64,
    /// Time for the participants that signed to send the shares that open the sum.
    pub unmask_deadline_ms: u64,
}

impl Default for SecureAggregationSpec {
    fn default() -> Self {
        Self {
            enabled: true,
            min_cohort: None,
            batch_size: None,
            max_corrupt_fraction: 0.1,
            max_dropout_fraction: 0.3,
            modulus_bits: None,
            clip_range: None,
            share_deadline_ms: 60_000,
            confirm_deadline_ms: 60_000,
            unmask_deadline_ms: 60_000,
        }
    }
}

impl SecureAggregationSpec {
    /// γ in millionths, rounded.
    #[must_use]
    pub fn max_corrupt_millionths(&self) -> u32 {
        millionths(self.max_corrupt_fraction)
    }

    /// δ in millionths, rounded.
    #[must_use]
    pub fn max_dropout_millionths(&self) -> u32 {
        millionths(self.max_dropout_fraction)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, which is meant")]
fn millionths(fraction: f64) -> u32 {
    (fraction * 1e6).round() as u32
}
