//! Terms that vary between attempts at rounds.

use wire::{Attempt, Digest};

use crate::digest::{codec_seed, rotation_seed};
use crate::server::TaskModel;

/// Terms that differ between attempts at rounds.
pub struct RoundTerms {
    /// L2 clipping norm of the updates.
    pub clip: f64,
    /// Seed of their rotation.
    pub rotation: Digest,
    /// Seed of the codec's draws.
    pub codec: Digest,
}

impl RoundTerms {
    /// The terms of an attempt based on a version with this clipping norm.
    #[must_use]
    pub fn new(model: &TaskModel, clip: Option<f64>, attempt: Attempt) -> Self {
        let initial = model.private.as_ref().map_or(f64::NAN, |private| private.initial_clip());
        Self {
            clip: clip.unwrap_or(initial),
            rotation: rotation_seed(attempt),
            codec: codec_seed(model.encoding.compression.as_ref(), attempt),
        }
    }
}
