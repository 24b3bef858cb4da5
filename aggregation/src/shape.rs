//! The shape of a sum: number of words and modulus.

use secure_agg::mask::MaskPlan;
use secure_agg::modular::Modulus;
use secure_agg::packing;

use crate::AggregationError;
use crate::limits;

/// The length and modulus of the vectors of one sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    words: usize,
    modulus: Modulus,
}

impl Shape {
    /// Maximum length of a vector: 2^30 words, a sum of 4 GiB.
    pub const MAX_WORDS: usize = limits::MAX_WORDS;

    /// Vectors of `words` words (1 to [`MAX_WORDS`](Self::MAX_WORDS)) modulo 2^`modulus_bits` (16 to 32).
    ///
    /// # Errors
    /// [`AggregationError::Words`] or [`AggregationError::Modulus`] for a value out of range.
    pub fn new(words: usize, modulus_bits: u8) -> Result<Self, AggregationError> {
        if words == 0 || words > Self::MAX_WORDS {
            return Err(AggregationError::Words { words });
        }
        Ok(Self { words, modulus: Modulus::new(modulus_bits)? })
    }

    /// Words of a vector.
    #[must_use]
    pub const fn words(self) -> usize {
        self.words
    }

    /// The modulus of a vector.
    #[must_use]
    pub const fn modulus(self) -> Modulus {
        self.modulus
    }

    /// Packed length of a vector, in bytes.
    #[must_use]
    pub const fn packed_len(self) -> usize {
        packing::packed_len(self.words, self.modulus)
    }

    /// Separately unmasked slices of a vector start at multiples of 2^16 words.
    pub const SLICE_START: u64 = limits::SLICE_START;

    /// Checks that `len` words from `offset` on are a slice of the plan's vector, with as much room for the result.
    ///
    /// # Errors
    /// [`AggregationError::Slice`] if they are not, or if `offset` is not a multiple of
    /// [`SLICE_START`](Self::SLICE_START); [`AggregationError::Length`] if the room for the result has another length.
    pub fn check_slice(plan: &MaskPlan, offset: u64, len: usize, room: usize) -> Result<(), AggregationError> {
        if room != len {
            return Err(AggregationError::Length { expected: len, got: room });
        }
        let end = offset.checked_add(len as u64);
        if !offset.is_multiple_of(Self::SLICE_START) || end.is_none_or(|end| end > plan.words()) {
            return Err(AggregationError::Slice { offset, len, words: plan.words() });
        }
        Ok(())
    }

    /// Checks that the words of a vector of this shape are those of the plan's vector from `offset` on.
    ///
    /// # Errors
    /// [`AggregationError::Slice`] as for [`check_slice`](Self::check_slice); [`AggregationError::Plan`] for another modulus.
    pub fn check_place(self, plan: &MaskPlan, offset: u64) -> Result<(), AggregationError> {
        Self::check_slice(plan, offset, self.words, self.words)?;
        if plan.modulus() == self.modulus { Ok(()) } else { Err(self.another(plan)) }
    }

    /// Checks that `plan` is for vectors of this shape.
    ///
    /// # Errors
    /// [`AggregationError::Plan`] if it is not.
    pub fn check_plan(self, plan: &MaskPlan) -> Result<(), AggregationError> {
        if plan.words() == self.words as u64 && plan.modulus() == self.modulus {
            return Ok(());
        }
        Err(self.another(plan))
    }

    fn another(self, plan: &MaskPlan) -> AggregationError {
        AggregationError::Plan {
            words: self.words,
            bits: self.modulus.bits(),
            plan_words: plan.words(),
            plan_bits: plan.modulus().bits(),
        }
    }
}

/// An empty vector with the capacity of a sum.
pub(crate) fn room_for(shape: Shape) -> Result<Vec<u32>, AggregationError> {
    let mut words = Vec::new();
    let bytes = shape.words().saturating_mul(size_of::<u32>());
    words.try_reserve_exact(shape.words()).map_err(|_| AggregationError::OutOfMemory { bytes })?;
    Ok(words)
}
