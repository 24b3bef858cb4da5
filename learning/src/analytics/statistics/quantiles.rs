//! Narrows the interval of a quantile by counts of its parts.

use serde::{Deserialize, Serialize};

use crate::analytics::table::{Range, power};

/// Grid resolution, in bits.
pub(super) const GRID: u32 = 30;
/// Bits by which a round narrows a quantile's interval.
const STEP: u32 = 6;
const PARTS: usize = 1 << STEP;
/// Number of rounds after which a quantile is a single grid point.
pub(super) const MAX_ROUNDS: u32 = GRID / STEP;

/// Rows below the interval, then the rows in each of its parts.
pub(super) const QUANTILE: usize = 1 + PARTS;

/// A quantile and its current interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantile {
    /// Above 0 and below 1.
    pub of: f64,
    /// Middle of the interval. The quantile is the least value v such that at least this share of the rows is at most v.
    pub value: f64,
    /// Start of the interval, in 2^-30 of the range.
    start: u32,
    /// The interval is 2^bits grid steps wide.
    bits: u32,
}

/// Counts a value for every quantile of its column.
pub(super) fn count_parts(range: Range, value: f64, quantiles: &[Quantile], out: &mut [i64]) {
    if quantiles.is_empty() {
        return;
    }
    let grid = range.grid(value, GRID).min((1 << GRID) - 1);
    for (quantile, cells) in quantiles.iter().zip(out.chunks_exact_mut(QUANTILE)) {
        let from = i64::from(quantile.start);
        let within = (grid - from) >> quantile.bits.saturating_sub(STEP);
        match usize::try_from(within) {
            Err(_) => cells[0] += 1,
            Ok(part) if part < PARTS => cells[1 + part] += 1,
            Ok(_) => {}
        }
    }
}

impl Quantile {
    /// Before the first round: anywhere in the range.
    pub(super) fn new(of: f64, range: Range) -> Self {
        Self { of, value: range.at(0.5, 0), start: 0, bits: GRID }
    }

    /// Whether a deserialized one is of this share, and its interval is within the range.
    pub(super) fn is_sound(&self, of: f64) -> bool {
        self.of == of
            && self.value.is_finite()
            && self.bits <= GRID
            && self.bits.is_multiple_of(STEP)
            && u64::from(self.start) + (1 << self.bits) <= 1 << GRID
    }

    /// Narrows the interval to the part with the quantile. If rows joined or left since the last round, takes the nearest part.
    pub(super) fn narrow(&mut self, range: Range, cells: &[i64], rows: u64) {
        if rows == 0 || self.bits == 0 {
            return;
        }
        // The least rank whose share reaches the quantile; counts are far below 2^53.
        let rank = (self.of * rows as f64).ceil().max(1.0);
        let mut seen = cells[0] as f64;
        let parts = &cells[1..];
        let reached = parts.iter().position(|&cell| {
            seen += cell as f64;
            seen >= rank
        });
        let part = u32::try_from(reached.unwrap_or(PARTS - 1)).unwrap_or_default();
        self.bits -= STEP;
        self.start += part << self.bits;
        let middle = if self.bits == 0 { 0.0 } else { power(self.bits - 1) };
        self.value = range.at(f64::from(self.start) + middle, GRID);
    }
}
