//! The answer to an upload.

use federation::id::Digest;
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Confirms that a masked input is stored and will count once. The same bytes sent again get the same receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Receipt {
    /// Of the body.
    pub sha256: Digest,
    /// Length of the body, in bytes.
    pub bytes: u64,
    pub accepted_at: Timestamp,
}
