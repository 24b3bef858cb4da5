//! An upload in parts, and the answer to an upload.

use federation::id::Digest;
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What a masked input consists of that is sent in parts of 8 MiB, the last of which may be shorter: two at least.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UploadManifest {
    /// Length of the input, in bytes.
    pub bytes: u64,
    /// SHA-256 of each part, in order.
    pub parts: Vec<Digest>,
}

/// The answer to an [`UploadManifest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum UploadReply {
    /// These parts, counted from 0, are not stored yet: send them, then the manifest again.
    Missing { parts: Vec<u32> },
    /// All are stored, and the input counts.
    Accepted(Receipt),
}

/// Confirms that a masked input is stored and will count once. The same bytes sent again get the same receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Receipt {
    /// Of the body; of an input in parts, the root of its tree (`secure_agg::upload`).
    pub sha256: Digest,
    /// Length of the body, in bytes.
    pub bytes: u64,
    pub accepted_at: Timestamp,
}
