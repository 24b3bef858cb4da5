//! Robust statistics of many vectors: coordinate-wise medians and trimmed means, and all inner products.
//!
//! The vectors are centred words of a modulus of 2^16 (`i16`), and every result is an integer, so devices must agree bit for bit. The
//! caller performs inexact divisions.

use crate::AggregationError;
use crate::limits;

/// Vectors of equal length, one per participant, in the clear.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    vectors: &'a [&'a [i16]],
    words: usize,
}

impl<'a> Inputs<'a> {
    /// Maximum number of vectors: their Gram matrix takes 128 MiB.
    pub const MAX_VECTORS: usize = limits::MAX_VECTORS;

    /// 1 to [`MAX_VECTORS`](Self::MAX_VECTORS) vectors of equal length, at least one word each.
    ///
    /// # Errors
    /// [`AggregationError::Vectors`] for too few or too many, [`AggregationError::Length`] for unequal lengths,
    /// [`AggregationError::Words`] for empty ones.
    pub fn new(vectors: &'a [&'a [i16]]) -> Result<Self, AggregationError> {
        if vectors.is_empty() || vectors.len() > Self::MAX_VECTORS {
            return Err(AggregationError::Vectors { vectors: vectors.len() });
        }
        let words = vectors[0].len();
        if words == 0 {
            return Err(AggregationError::Words { words });
        }
        match vectors.iter().find(|vector| vector.len() != words) {
            Some(other) => Err(AggregationError::Length { expected: words, got: other.len() }),
            None => Ok(Self { vectors, words }),
        }
    }

    #[must_use]
    pub const fn vectors(&self) -> &'a [&'a [i16]] {
        self.vectors
    }

    /// Words of each vector.
    #[must_use]
    pub const fn words(&self) -> usize {
        self.words
    }

    /// Checks that `trim` smallest and as many largest values can be trimmed.
    ///
    /// # Errors
    /// [`AggregationError::Trim`] if trimming would remove all values.
    pub const fn check_trim(&self, trim: usize) -> Result<(), AggregationError> {
        let vectors = self.vectors.len();
        if trim >= vectors.div_ceil(2) {
            return Err(AggregationError::Trim { trim, vectors });
        }
        Ok(())
    }
}

/// A device that computes robust statistics; every [`Aggregator`](crate::Aggregator) is one.
pub trait RobustStatistics: Send + Sync {
    /// Twice the median of each coordinate: twice the middle value, or the sum of the two middle values.
    ///
    /// # Errors
    /// [`AggregationError::Device`] or [`AggregationError::OutOfMemory`] if the device fails.
    fn median(&self, inputs: Inputs<'_>) -> Result<Vec<i32>, AggregationError>;

    /// The mean of each coordinate without its `trim` smallest and its `trim` largest values, times the number of remaining values,
    /// `inputs.vectors().len() - 2 * trim`. With `trim` 0, the sum.
    ///
    /// # Errors
    /// [`AggregationError::Trim`] if trimming would remove all values; otherwise as for [`median`](Self::median).
    fn trimmed_mean(&self, inputs: Inputs<'_>, trim: usize) -> Result<Vec<i32>, AggregationError>;

    /// The inner products of all pairs: entry `i * n + j` is that of vectors `i` and `j`. The squared distance of two
    /// vectors (Krum; Blanchard et al. 2017) is `g[i,i] - 2 g[i,j] + g[j,j]`.
    ///
    /// # Errors
    /// As for [`median`](Self::median).
    fn gram(&self, inputs: Inputs<'_>) -> Result<Vec<i64>, AggregationError>;
}

/// Copies the upper triangle of a square matrix to the lower one.
pub(crate) fn mirror(products: &mut [i64], vectors: usize) {
    for i in 1..vectors {
        for j in 0..i {
            products[i * vectors + j] = products[j * vectors + i];
        }
    }
}

/// Has robust statistics come from a field of the type.
#[cfg(test)]
macro_rules! robust_from {
    ($device:ty, $field:tt) => {
        impl $crate::robust::RobustStatistics for $device {
            fn median(&self, inputs: $crate::robust::Inputs<'_>) -> Result<Vec<i32>, $crate::AggregationError> {
                self.$field.median(inputs)
            }

            fn trimmed_mean(
                &self,
                inputs: $crate::robust::Inputs<'_>,
                trim: usize,
            ) -> Result<Vec<i32>, $crate::AggregationError> {
                self.$field.trimmed_mean(inputs, trim)
            }

            fn gram(&self, inputs: $crate::robust::Inputs<'_>) -> Result<Vec<i64>, $crate::AggregationError> {
                self.$field.gram(inputs)
            }
        }
    };
}
#[cfg(test)]
pub(crate) use robust_from;
