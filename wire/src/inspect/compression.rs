//! Savings and cost of a task's codec.

use serde::{Deserialize, Serialize};

/// The codec in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CompressionView {
    /// Name, as in the task.
    pub codec: String,
    /// Size of an uploaded update, in bytes.
    pub upload_bytes: u64,
    /// Compression ratio: size of the update in 32-bit floats over the upload's.
    pub ratio: f64,
    /// L2 norm of the encoder's input, error feedback included: the mean over the updates in the sum. Absent until the
    /// sum is decoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<f64>,
    /// Relative error of decoding one of these updates alone: the mean over the updates, as measured by their
    /// participants and included in the sum. If the codec is unbiased, the mean of n updates has a smaller error; with
    /// error feedback, it is the part that remains for later rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_error: Option<f64>,
}
