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
        /// Coordinates, 1 to the model's. [`Compression::usual_k`] is a tenth of them.
        #[serde(default)]
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
        /// Vectors of the basis, 1 to 128. Default: 16.
        #[serde(default = "sixteen")]
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
        /// Coordinates, 1 to the model's. [`Compression::usual_k`] is a hundredth of them.
        #[serde(default)]
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

fn sixteen() -> u32 {
    16
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

    /// The usual number of coordinates for a model of so many parameters, where codecs send a number of them.
    #[must_use]
    pub fn usual_k(&self, parameters: u64) -> Option<u64> {
        let part = match self {
            Self::RandomK { .. } => 10,
            Self::TopK { .. } => 100,
            Self::Rotated { .. } | Self::LowRank { .. } | Self::Int8 {} => return None,
        };
        // To the nearest.
        Some((parameters + part / 2) / part)
    }

    /// The L2 norm that suits the first rounds of small models, for codecs that take their range from `aggregation.clip_norm`.
    #[must_use]
    pub fn usual_clip_norm(&self) -> Option<f32> {
        match self {
            Self::Rotated { .. } => Some(2.0),
            Self::RandomK { .. } | Self::LowRank { .. } | Self::TopK { .. } | Self::Int8 {} => None,
        }
    }

    /// Whether uploads can be added without being looked at: what masks need.
    #[must_use]
    pub fn is_summable(&self) -> bool {
        !matches!(self, Self::TopK { .. } | Self::Int8 {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_follows_from_the_model() {
        let read = |json: &str| serde_json::from_str::<Compression>(json).unwrap();
        assert_eq!(read(r#"{"codec":"top_k"}"#).usual_k(159_010), Some(1590));
        assert_eq!(read(r#"{"codec":"random_k"}"#).usual_k(615), Some(62));
        let low_rank = read(r#"{"codec":"low_rank"}"#);
        assert_eq!(low_rank, Compression::LowRank { rank: 16, bits: 12, error_feedback: false });
        assert_eq!((low_rank.usual_k(610), low_rank.usual_clip_norm()), (None, None));
        assert_eq!(read(r#"{"codec":"rotated"}"#).usual_clip_norm(), Some(2.0));
    }
}
