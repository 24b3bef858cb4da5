//! What can go wrong while summing, and what would have been right.

use std::io;

use secure_agg::modular::InvalidModulus;
use secure_agg::packing::PackingError;
use thiserror::Error;

use crate::limits::{MAX_VECTORS, MAX_WORDS, SLICE_START};

/// Why a sum was not begun, continued or ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AggregationError {
    /// The modulus is out of range.
    #[error(transparent)]
    Modulus(#[from] InvalidModulus),
    /// The length is out of range.
    #[error("a vector has 1 to {max} words, not {words}", max = MAX_WORDS)]
    Words {
        /// What was asked for.
        words: usize,
    },
    /// Bytes are not the wire form of a vector of the sum's shape.
    #[error(transparent)]
    Packing(#[from] PackingError),
    /// A vector of words has another length than the sum.
    #[error("the sum has {expected} words, {got} were given")]
    Length {
        /// Words of the sum.
        expected: usize,
        /// Words that were given.
        got: usize,
    },
    /// The masks are for another vector.
    #[error("the sum has {words} words modulo 2^{bits}, the mask plan is for {plan_words} words modulo 2^{plan_bits}")]
    Plan {
        /// Words of the sum.
        words: usize,
        /// Bits of the sum's modulus.
        bits: u8,
        /// Words of the plan's vector.
        plan_words: u64,
        /// Bits of the plan's modulus.
        plan_bits: u8,
    },
    /// A slice does not lie in the vector of the plan, or starts where slices do not.
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
    Vectors {
        /// How many were given.
        vectors: usize,
    },
    /// A trimmed mean of nothing.
    #[error("without the {trim} smallest and the {trim} largest of {vectors} values nothing is left")]
    Trim {
        /// Values to leave out at either end.
        trim: usize,
        /// Values there are.
        vectors: usize,
    },
    /// There is no room for the sum.
    #[error("there is no memory for {bytes} bytes of a sum")]
    OutOfMemory {
        /// What was asked for.
        bytes: usize,
    },
    /// A stream failed while it was added.
    #[error("a masked input could not be read")]
    Read(#[source] io::Error),
    /// A partial sum could not be written.
    #[error("a partial sum could not be written")]
    Write(#[source] io::Error),
    /// An earlier stream failed half-way.
    #[error("an earlier input of this sum broke off half-way: begin again from the last stored partial sum")]
    Torn,
    /// The device failed or answered wrongly.
    #[error("device {device} failed: {reason}")]
    Device {
        /// The device's name.
        device: String,
        /// What happened.
        reason: String,
    },
}
