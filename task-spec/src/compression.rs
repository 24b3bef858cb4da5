//! `[compression]` of a task: in which form updates are uploaded.
//!
//! Whether a codec fits the model and leaves headroom is `learning`'s to say (`learning::CodecSpec` means the same); here is
//! what it asks of the rest of the task.

use serde::{Deserialize, Serialize};

/// Names under which a round's metrics hold what its codec did to the updates; a task with a codec has no metric of its own
/// that begins like them.
pub const CODEC_METRICS: [&str; 2] = ["codec.norm", "codec.added_error"];

/// The codec of every upload. Left out: one word per parameter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "codec", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Compression {
    /// A randomised rotation, then few bits for each coordinate, or for a random part of them. Needs
    /// `aggregation.clip_norm`, from which its range follows.
    Rotated {
        /// Bits of one participant's coordinate, 1 to 16. Default: 2.
        #[serde(default = "two")]
        bits: u8,
        /// Part of the rotated coordinates that is sent, above 0, at most 1. Default: 1.
        #[serde(default = "whole")]
        keep: f64,
    },
    /// `k` coordinates, drawn anew in each round by a seed that the whole cohort shares.
    RandomK {
        /// Coordinates, 1 to the model's.
        k: u64,
        /// Bits of one participant's coordinate, 1 to 16. Default: 12.
        #[serde(default = "twelve")]
        bits: u8,
        /// Whether participants keep what they did not send and bring it along next time. Default: no.
        #[serde(default)]
        error_feedback: bool,
    },
    /// Each matrix as its product with a random basis that the whole cohort shares.
    LowRank {
        /// Vectors of the basis, 1 to 128.
        rank: u32,
        /// Bits of one participant's coordinate, 1 to 16. Default: 12.
        #[serde(default = "twelve")]
        bits: u8,
        /// Whether participants keep what they did not send and bring it along next time. Default: no.
        #[serde(default)]
        error_feedback: bool,
    },
    /// The `k` coordinates that changed most. Not for secure aggregation.
    TopK {
        /// Coordinates, 1 to the model's.
        k: u64,
        /// Whether participants keep what they did not send and bring it along next time. Default: yes.
        #[serde(default = "yes")]
        error_feedback: bool,
    },
    /// Every coordinate in 8 bits, with a scale for each tensor. Not for secure aggregation.
    Int8 {},
}

fn two() -> u8 {
    2
}

fn twelve() -> u8 {
    12
}

fn whole() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

impl Compression {
    /// Its name in a task file.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rotated { .. } => "rotated",
            Self::RandomK { .. } => "random_k",
            Self::LowRank { .. } => "low_rank",
            Self::TopK { .. } => "top_k",
            Self::Int8 {} => "int8",
        }
    }

    /// Whether uploads can be added without being looked at: what masks need.
    #[must_use]
    pub fn is_summable(&self) -> bool {
        !matches!(self, Self::TopK { .. } | Self::Int8 {})
    }
}
