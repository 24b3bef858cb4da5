//! `[compression]` of a task: the codec of uploads.
//!
//! `learning` checks whether a codec fits the model and leaves headroom. This module checks the codec's requirements on the rest of the
//! task.

use serde::{Deserialize, Serialize};

/// Names of a round's metrics about its codec; a task with a codec must not have metrics with the same prefix.
pub const CODEC_METRICS: [&str; 2] = ["codec.norm", "codec.added_error"];

/// The codec of uploads. Default: one word per parameter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "codec", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Compression {
    /// A randomised rotation, then few bits for each coordinate, or for a random sample of them. Needs
    /// `aggregation.clip_norm`, from which its range follows.
    Rotated {
        /// Bits per coordinate, 1 to 16. Default: 2.
        #[serde(default = "two")]
        bits: u8,
        /// Share of the rotated coordinates that is sent, above 0, at most 1. Default: 1.
        #[serde(default = "whole")]
        keep: f64,
    },
    /// `k` coordinates, drawn anew in each round from a seed that the whole cohort shares.
    RandomK {
        /// Number of coordinates, at most the model's.
        k: u64,
        /// Bits per coordinate, 1 to 16. Default: 12.
        #[serde(default = "twelve")]
        bits: u8,
        /// Whether participants keep what they did not send and add it to the next update. Default: no.
        #[serde(default)]
        error_feedback: bool,
    },
    /// Each matrix as its product with a random basis that the whole cohort shares.
    LowRank {
        /// Number of basis vectors, 1 to 128.
        rank: u32,
        /// Bits per coordinate, 1 to 16. Default: 12.
        #[serde(default = "twelve")]
        bits: u8,
        /// Whether participants keep what they did not send and add it to the next update. Default: no.
        #[serde(default)]
        error_feedback: bool,
    },
    /// The `k` coordinates of largest magnitude. Not for secure aggregation.
    TopK {
        /// Number of coordinates, at most the model's.
        k: u64,
        /// Whether participants keep what they did not send and add it to the next update. Default: yes.
        #[serde(default = "yes")]
        error_feedback: bool,
    },
    /// 8 bits per coordinate, and one scale per tensor. Not for secure aggregation.
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

    /// Whether uploads can be added without expansion, as masks require.
    #[must_use]
    pub fn is_summable(&self) -> bool {
        match self {
            Self::Rotated { .. } | Self::RandomK { .. } | Self::LowRank { .. } => true,
            Self::TopK { .. } | Self::Int8 {} => false,
        }
    }
}
