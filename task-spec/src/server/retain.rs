//! `retain`: retention of model versions.

use serde::{Deserialize, Serialize};

/// Model versions whose files stay stored, beside pinned ones and those that the task itself may still need. Of every
/// version the row stays: number, digest, size, origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Retain {
    /// The newest so many; at least 1.
    pub last: u32,
}
