//! Why a codec cannot be, or an upload is none.

use crate::parameters::WrongLength;
use crate::quantize::HeadroomError;

/// Most vectors of a basis: making it takes `p rank^2` operations.
pub const MAX_RANK: u32 = 128;

/// A codec that does not fit its task; refused when the task is created.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// What holds for the plain codec as well.
    #[error(transparent)]
    Headroom(#[from] HeadroomError),
    /// Parameters of another model.
    #[error(transparent)]
    WrongLength(#[from] WrongLength),
    /// No coordinates, or more than there are.
    #[error("k must be 1 to {parameters}, the parameters of the model, not {k}")]
    K {
        /// As asked for.
        k: u64,
        /// Of the shared layout.
        parameters: usize,
    },
    /// No part of a whole.
    #[error("keep must be above 0 and at most 1, not {0}")]
    Keep(f64),
    /// Levels that no lane holds.
    #[error("bits must be 1 to 16, not {0}")]
    Bits(u8),
    /// A basis of nothing, or one that takes too long to make.
    #[error("rank must be 1 to {MAX_RANK}, not {0}")]
    Rank(u32),
    /// A basis that is no smaller than any matrix.
    #[error(
        "rank {rank} is not below the longer side of any matrix of the model, the largest of which is {largest}: nothing \
         would be saved"
    )]
    RankTooLarge {
        /// As asked for.
        rank: u32,
        /// Longest side of a matrix of the model; 0 if it has none.
        largest: u64,
    },
    /// Rotation needs to know how long updates are.
    #[error("the rotated codec needs clip_norm, the bound on an update's L2 norm: its range follows from it")]
    NoClipNorm,
    /// Not one coordinate of a full cohort fits into a word.
    #[error(
        "{max_cohort} updates of {bits} bits per coordinate leave no headroom in a word of 32 bits: at most {best_bits} bits \
         would do"
    )]
    NoHeadroom {
        /// As asked for.
        bits: u8,
        /// As asked for.
        max_cohort: u32,
        /// Most bits that would do.
        best_bits: u8,
    },
}

/// Why bytes are not an upload of a codec. The participant that sent them is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UploadError {
    /// Uploads of this codec are words, to be added as they are.
    #[error("uploads of this task are words already")]
    Summable,
    /// Too few or too many bytes.
    #[error("an upload of this task has {expected} bytes, this one has {got}")]
    Length {
        /// The codec's.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// Another version of the format.
    #[error("the upload is of version {0} of its format, version {known} is known", known = super::upload::VERSION)]
    Version(u8),
    /// A weight that nobody has.
    #[error("its weight is {weight}; an update weighs 1 to {most}")]
    Weight {
        /// What the upload says.
        weight: u32,
        /// The cap.
        most: u32,
    },
    /// A metric or the measured distortion that is no number or out of bounds.
    #[error("no single participant can have measured metric {index}")]
    Metric {
        /// Its index; the codec's own follow the task's.
        index: usize,
    },
    /// A scale that is no finite number, or below 0.
    #[error("scale {index} is not a finite number of at least 0")]
    Scale {
        /// Its index.
        index: usize,
    },
    /// A value out of the symmetric range.
    #[error("value {index} is -128; values are -127 to 127")]
    Value {
        /// Its index.
        index: usize,
    },
    /// Positions that are not as many ascending ones within the model.
    #[error("the positions are not {0} ascending ones within the model")]
    Positions(usize),
}
