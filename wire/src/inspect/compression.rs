//! What a task's codec saves and what it costs.

use serde::{Deserialize, Serialize};

/// The codec at work in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CompressionView {
    /// Its name, as in the task.
    pub codec: String,
    /// Bytes of one update as it is uploaded.
    pub upload_bytes: u64,
    /// How many times smaller that is than the update in 32-bit floats.
    pub ratio: f64,
    /// L2 norm of what was to be sent, error feedback included: the mean over the updates in the sum; none before the sum is
    /// decoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<f64>,
    /// What decoding one of these updates alone would be off by, as a part of its norm: the mean over the updates, as their
    /// participants measured it and summed it with the rest. Of an unbiased codec the mean of n updates is off by less; with
    /// error feedback it is what stays for later rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_error: Option<f64>,
}
