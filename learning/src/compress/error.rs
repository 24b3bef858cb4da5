//! Errors of update codecs and uploads.

use crate::parameters::WrongLength;
use crate::quantize::HeadroomError;

/// Version of the format of uploads.
pub(super) const VERSION: u8 = 1;
/// Maximum number of vectors in a basis, which takes `p rank^2` operations to compute.
pub(super) const MAX_RANK: u32 = 128;

/// Reasons a codec does not fit its task; rejected when the task is created.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// A reason shared with the plain codec.
    #[error(transparent)]
    Headroom(#[from] HeadroomError),
    /// The layout and the parameters differ in length.
    #[error(transparent)]
    WrongLength(#[from] WrongLength),
    /// k is 0 or exceeds the number of parameters.
    #[error("k must be 1 to {parameters}, the parameters of the model, not {k}")]
    K { k: u64, parameters: usize },
    /// The share is not above 0 and at most 1.
    #[error("keep must be above 0 and at most 1, not {0}")]
    Keep(f64),
    /// This number of bits fits no lane.
    #[error("bits must be 1 to 16, not {0}")]
    Bits(u8),
    /// The rank is 0, or the basis would take too long to compute.
    #[error("rank must be 1 to {MAX_RANK}, not {0}")]
    Rank(u32),
    /// Every matrix would stay as large or grow.
    #[error(
        "rank {rank} is not below the longer side of any matrix of the model, the largest of which is {largest}: nothing \
         would be saved"
    )]
    RankTooLarge {
        rank: u32,
        /// Longest side of any matrix of the model; 0 without matrices.
        largest: u64,
    },
    /// The rotated codec lacks a bound on the length of updates.
    #[error("the rotated codec needs clip_norm, the bound on an update's L2 norm: its range follows from it")]
    NoClipNorm,
    /// A word cannot hold one coordinate of a full cohort.
    #[error(
        "{max_cohort} updates of {bits} bits per coordinate leave no headroom in a word of 32 bits: at most {best_bits} bits \
         would do"
    )]
    NoHeadroom {
        bits: u8,
        max_cohort: u32,
        /// Largest fitting `bits`.
        best_bits: u8,
    },
}

/// Reasons bytes are rejected as an upload. Reported to their sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UploadError {
    /// Uploads of this codec are words, without expansion.
    #[error("uploads of this task are words already")]
    Summable,
    /// The number of bytes is wrong.
    #[error("an upload of this task has {expected} bytes, this one has {got}")]
    Length { expected: usize, got: usize },
    /// The format version is unknown.
    #[error("the upload is of version {0} of its format, version {known} is known", known = VERSION)]
    Version(u8),
    /// The weight is 0 or above the cap.
    #[error("its weight is {weight}; an update weighs 1 to {most}")]
    Weight { weight: u32, most: u32 },
    /// A metric or the measured distortion is not finite or out of bounds.
    #[error("no single participant can have measured metric {index}")]
    Metric {
        /// The codec's own metrics follow the task's.
        index: usize,
    },
    /// A scale is negative or not finite.
    #[error("scale {index} is not a finite number of at least 0")]
    Scale { index: usize },
    /// A value is outside the symmetric range.
    #[error("value {index} is -128; values are -127 to 127")]
    Value { index: usize },
    /// The positions are not strictly ascending, or exceed the model.
    #[error("the positions are not {0} ascending ones within the model")]
    Positions(usize),
}
