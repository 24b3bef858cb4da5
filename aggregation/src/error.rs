//! Errors of sums and devices.

use std::io;

use secure_agg::modular::InvalidModulus;
use secure_agg::packing::PackingError;
use thiserror::Error;

use crate::limits::{MAX_VECTORS, MAX_WORDS, SLICE_START};

/// Reasons a sum cannot be started, continued or completed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AggregationError {
    /// The modulus is out of range.
    #[error(transparent)]
    Modulus(#[from] InvalidModulus),
    /// The length is out of range.
    #[error("a vector has 1 to {max} words, not {words}", max = MAX_WORDS)]
    Words { words: usize },
    /// The bytes are not a packed vector of the sum's shape.
    #[error(transparent)]
    Packing(#[from] PackingError),
    /// A vector of words has another length than the sum.
    #[error("the sum has {expected} words, not {got}")]
    Length { expected: usize, got: usize },
    /// The mask plan is for another vector.
    #[error("the sum has {words} words modulo 2^{bits}, the mask plan is for {plan_words} words modulo 2^{plan_bits}")]
    Plan {
        words: usize,
        /// Bits of the sum's modulus.
        bits: u8,
        /// Words of the plan's vector.
        plan_words: u64,
        /// Bits of the plan's modulus.
        plan_bits: u8,
    },
    /// The slice lies outside the plan's vector, or does not start at a multiple of
    /// [`SLICE_START`](crate::Shape::SLICE_START).
    #[error(
        "{len} words from word {offset} on are no slice of the plan's {words} words that starts at a multiple of {start}",
        start = SLICE_START
    )]
    Slice {
        /// Index of the first word of the slice.
        offset: u64,
        /// Words of the slice.
        len: usize,
        /// Words of the plan's vector.
        words: u64,
    },
    /// Too few or too many vectors for robust statistics.
    #[error("robust statistics take 1 to {max} vectors, not {vectors}", max = MAX_VECTORS)]
    Vectors { vectors: usize },
    /// Trimming would remove all values.
    #[error("trimming the {trim} smallest and the {trim} largest of {vectors} values leaves none")]
    Trim {
        /// Values to trim at either end.
        trim: usize,
        vectors: usize,
    },
    /// The sum does not fit into memory.
    #[error("there is no memory for a sum of {bytes} bytes")]
    OutOfMemory { bytes: usize },
    /// A stream failed while it was added.
    #[error("a masked input could not be read")]
    Read(#[source] io::Error),
    /// A partial sum could not be written.
    #[error("a partial sum could not be written")]
    Write(#[source] io::Error),
    /// An earlier stream failed halfway.
    #[error("an earlier input of this sum failed halfway: start again from the last stored partial sum")]
    Torn,
    /// The device failed or answered incorrectly.
    #[error("device {device} failed: {reason}")]
    Device { device: String, reason: String },
}
