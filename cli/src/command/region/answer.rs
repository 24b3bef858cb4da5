//! The answer of a region: the model of its last completed round, its number of examples, and its metrics.

use client_sdk::Parameters;
use wire::Digest;
use wire::inspect::RegionFigures;

/// What a region returns to the upper coordinator.
pub(super) struct Answer {
    pub(super) parameters: Parameters,
    pub(super) figures: RegionFigures,
    /// Digest of the signed record of the regional version; `None` if it has no record.
    pub(super) below: Option<Digest>,
}
