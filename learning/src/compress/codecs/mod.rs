//! The codecs, one per file, and their only list in this crate.
//!
//! A [`Projection`] makes words for addition; an [`Expanded`] codec makes bytes, which the coordinator expands first.

mod int8;
mod low_rank;
mod random_k;
mod rotated;
mod top_k;

use rand::Rng;
use task_spec::Compression;

use super::{CodecError, UploadError};
use crate::parameters::Layout;
use crate::quantize::QuantizationParams;
use int8::Int8;
use low_rank::LowRank;
use random_k::RandomK;
use rotated::Rotated;
use top_k::TopK;

/// A task's codec, fitted to its model.
pub(super) enum Fitted {
    Summable {
        projection: Projection,
        /// `c`: coordinates are clamped to `±c`.
        range: f64,
        /// Bits per coordinate.
        bits: u8,
        error_feedback: bool,
    },
    Expanded(Expanded),
}

impl Fitted {
    pub(super) fn new(spec: &Compression, layout: &Layout, params: &QuantizationParams) -> Result<Self, CodecError> {
        let (parameters, range) = (layout.len(), f64::from(params.clip_range));
        Ok(match *spec {
            Compression::Rotated { bits, keep } => {
                let rotated = Rotated::new(parameters, keep)?;
                let range = rotated.range(params.clip_norm.ok_or(CodecError::NoClipNorm)?, bits);
                Self::Summable { projection: Projection::Rotated(rotated), range, bits, error_feedback: false }
            }
            Compression::RandomK { k, bits, error_feedback } => {
                let projection = Projection::RandomK(RandomK::new(parameters, k, error_feedback)?);
                Self::Summable { projection, range, bits, error_feedback }
            }
            Compression::LowRank { rank, bits, error_feedback } => {
                let projection = Projection::LowRank(LowRank::new(layout, rank, error_feedback)?);
                Self::Summable { projection, range, bits, error_feedback }
            }
            Compression::TopK { k, error_feedback } => {
                Self::Expanded(Expanded::TopK(TopK::new(parameters, k, error_feedback)?))
            }
            Compression::Int8 {} => Self::Expanded(Expanded::Int8(Int8::new(layout))),
        })
    }
}

/// A linear map to fewer coordinates, the same for the whole round.
#[derive(Clone, Debug)]
pub(super) enum Projection {
    Rotated(Rotated),
    RandomK(RandomK),
    LowRank(LowRank),
}

impl Projection {
    pub(super) fn coordinates(&self) -> usize {
        match self {
            Self::Rotated(rotated) => rotated.coordinates(),
            Self::RandomK(random_k) => random_k.coordinates(),
            Self::LowRank(low_rank) => low_rank.coordinates(),
        }
    }

    pub(super) fn project(&self, values: &[f64], seed: &[u8; 32]) -> Vec<f64> {
        match self {
            Self::Rotated(rotated) => rotated.project(values, seed),
            Self::RandomK(random_k) => random_k.project(values, seed),
            Self::LowRank(low_rank) => low_rank.project(values, seed),
        }
    }

    /// Estimates the values from their coordinates.
    pub(super) fn expand(&self, coordinates: &[f64], seed: &[u8; 32]) -> Vec<f64> {
        match self {
            Self::Rotated(rotated) => rotated.expand(coordinates, seed),
            Self::RandomK(random_k) => random_k.expand(coordinates, seed),
            Self::LowRank(low_rank) => low_rank.expand(coordinates, seed),
        }
    }
}

/// A codec dependent on the content of the update.
#[derive(Clone, Debug)]
pub(super) enum Expanded {
    TopK(TopK),
    Int8(Int8),
}

impl Expanded {
    pub(super) fn keeps_residual(&self) -> bool {
        match self {
            Self::TopK(top_k) => top_k.keeps_residual(),
            Self::Int8(_) => false,
        }
    }

    /// Size of its part of an upload; the same for every update.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::TopK(top_k) => top_k.bytes(),
            Self::Int8(int8) => int8.bytes(),
        }
    }

    /// Appends its part of an upload to `out`; returns the values as decoded.
    pub(super) fn encode(&self, values: &[f64], range: f64, out: &mut Vec<u8>, rng: &mut impl Rng) -> Vec<f64> {
        match self {
            Self::TopK(top_k) => top_k.encode(values, range, out),
            Self::Int8(int8) => int8.encode(values, range, out, rng),
        }
    }

    /// Passes each value and its position to `put`; all other values are 0.
    pub(super) fn expand(&self, body: &[u8], put: impl FnMut(usize, f64)) -> Result<(), UploadError> {
        match self {
            Self::TopK(top_k) => top_k.expand(body, put),
            Self::Int8(int8) => int8.expand(body, put),
        }
    }
}
