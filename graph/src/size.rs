//! Sizes that depend on the batch and on the length of sequences.

use serde::{Deserialize, Serialize};

/// The values that a graph's sizes depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Point {
    /// Number of examples that are computed at once, at least 1.
    pub batch: u32,
    /// Length of the sequences, at least 1; any value for a graph without sequences.
    pub length: u32,
}

/// A number of elements along an axis: `factor * batch^batch_power * length^length_power + offset`.
///
/// A fixed size is its offset alone. The first axis of every input and output has the size [`Size::BATCH`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Coefficient of the product; 0 in a fixed size.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub factor: i64,
    /// Power of the batch, 0 or 1.
    #[serde(default, skip_serializing_if = "is_zero_power")]
    pub batch: u8,
    /// Power of the length, 0 to 2.
    #[serde(default, skip_serializing_if = "is_zero_power")]
    pub length: u8,
    /// Added to the product.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: i64,
}

impl Size {
    /// The number of examples.
    pub const BATCH: Self = Self { factor: 1, batch: 1, length: 0, offset: 0 };
    /// The length of the sequences.
    pub const LENGTH: Self = Self { factor: 1, batch: 0, length: 1, offset: 0 };

    /// A size that depends on nothing.
    #[must_use]
    pub const fn fixed(size: i64) -> Self {
        Self { factor: 0, batch: 0, length: 0, offset: size }
    }

    /// The size for a batch and a length; `None` if it overflows.
    #[must_use]
    pub fn at(self, point: Point) -> Option<i64> {
        let power = |base: u32, power: u8| i64::from(base).checked_pow(u32::from(power));
        let product = self.factor.checked_mul(power(point.batch, self.batch)?)?;
        product.checked_mul(power(point.length, self.length)?)?.checked_add(self.offset)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(value: &i64) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero_power(value: &u8) -> bool {
    *value == 0
}
