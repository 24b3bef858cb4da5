//! Exact rejection sampling from a step function above a unimodal, log-concave weight on the integers.
//!
//! The line is cut into blocks whose width, a power of two, is about an eighth of a standard deviation. Each block gets a rational height,
//! in units of 2^-32, above all of its weights. A draw picks a block with probability proportional to its height (with an integer alias
//! table, so exactly), an integer uniformly within it, and a uniform height `y` below the block's; it is accepted if `y` is below the
//! weight. Nine in ten draws are accepted without computing the weight, because `y` is below the block's lowest one. Beyond the last block
//! on each side the heights halve from block to block, forever: log-concavity and the ratio at the last block prove that they stay above
//! the weight, so the tails are complete.

use std::cmp::Ordering;

use rand::CryptoRng;

use super::fixed::Fixed;
use super::{below, halves};

/// A weight with maximum 1, log-concave on the integers.
pub(crate) trait Weight {
    /// Relative error that [`estimate`](Self::estimate) stays well within.
    const GUARD: f64;

    /// Where the weight is 1.
    fn mode(&self) -> i64;

    /// Below this the weight is 0.
    fn lowest(&self) -> i64 {
        i64::MIN
    }

    /// Roughly its standard deviation.
    fn spread(&self) -> f64;

    /// The weight at `x`, in floating point.
    fn estimate(&self, x: i64) -> f64;

    /// The weight at `x` to `2^ERROR_BITS` units of the last of `limbs` limbs.
    fn exact(&self, x: i64, limbs: usize) -> Fixed;
}

/// Heights are multiples of 2^-32.
const HEIGHT_ONE: f64 = 4_294_967_296.0;
/// 2^64.
const WORD_ONE: f64 = 18_446_744_073_709_551_616.0;
/// Tails begin where the weight is below this, so that their slow path costs nothing on average.
const TAIL_WEIGHT: f64 = 1e-9;

#[derive(Clone, Copy, Debug)]
struct Block {
    start: i64,
    /// In units of 2^-32; at least as large as every weight in the block.
    height: u64,
    /// In units of 2^-64; every weight in the block exceeds it.
    sure: u64,
    side: Side,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Inside,
    /// Blocks of halving height, leftwards from `start`.
    LeftTail,
    /// Blocks of halving height, rightwards from `start`.
    RightTail,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Positions below belong to the cell's own block, the rest to the other one.
    cut: u64,
    other: usize,
}

/// A weight with its step function, ready to draw from.
#[derive(Clone, Debug)]
pub(crate) struct Majorant<W> {
    weight: W,
    blocks: Vec<Block>,
    cells: Vec<Cell>,
    /// The capacity of every cell.
    capacity: u64,
    /// log2 of a block's width.
    width_bits: u32,
}

impl<W: Weight> Majorant<W> {
    /// Builds the step function.
    pub(crate) fn new(weight: W) -> Self {
        let eighth = weight.spread() / 8.0;
        let mut width_bits = 0;
        while width_bits < 40 && ((2_u64 << width_bits) as f64) <= eighth {
            width_bits += 1;
        }
        let mut blocks = Vec::new();
        lay(&weight, 1 << width_bits, Side::RightTail, &mut blocks);
        lay(&weight, 1 << width_bits, Side::LeftTail, &mut blocks);
        let (cells, capacity) = alias(&blocks);
        Self { weight, blocks, cells, capacity, width_bits }
    }

    #[inline]
    pub(crate) fn sample<R: CryptoRng + ?Sized>(&self, rng: &mut R) -> i64 {
        loop {
            let word = rng.next_u64();
            let own = usize::try_from(word & 0xffff).unwrap_or(0) & (self.cells.len() - 1);
            let offset = ((word >> 16) & ((1 << self.width_bits) - 1)).cast_signed();
            let cell = self.cells[own];
            let block = self.blocks[if below(self.capacity, rng) < cell.cut { own } else { cell.other }];
            let digit = rng.next_u64();
            match block.side {
                Side::Inside => {
                    let x = block.start + offset;
                    let y = lower_digit(digit, block.height);
                    if y.saturating_add(2) <= block.sure || self.accepts(x, digit, block.height, rng) {
                        return x;
                    }
                }
                Side::LeftTail | Side::RightTail => {
                    if let Some(x) = self.tail(&block, offset, digit, rng) {
                        return x;
                    }
                }
            }
        }
    }

    /// Whether `y`, of which `digit` is known so far, is below the weight at `x`.
    #[inline(never)]
    fn accepts<R: CryptoRng + ?Sized>(&self, x: i64, digit: u64, height: u64, rng: &mut R) -> bool {
        let estimate = self.weight.estimate(x);
        let y = lower_digit(digit, height) as f64;
        // Conversions to f64 err by 2^-53, which the guard swallows; the units cover what is not yet revealed.
        if (y + 2.0) * (1.0 + W::GUARD) <= estimate * (1.0 - W::GUARD) * WORD_ONE {
            return true;
        }
        if y * (1.0 - W::GUARD) >= (estimate * (1.0 + W::GUARD)) * WORD_ONE + 1.0 {
            return false;
        }
        self.accepts_exactly(x, digit, height, 0, rng)
    }

    /// The same without floating point, for a height halved `halvings` times.
    #[inline(never)]
    fn accepts_exactly<R: CryptoRng + ?Sized>(
        &self,
        x: i64,
        digit: u64,
        height: u64,
        halvings: u32,
        rng: &mut R,
    ) -> bool {
        let mut digits = vec![digit];
        let mut limbs = 3 + (halvings / 64) as usize;
        loop {
            digits.resize_with(limbs, || rng.next_u64());
            let mut y = Fixed::fraction(&digits);
            y.scale(height, 1 << 32);
            y.shift_right(halvings);
            // The rest of `y` is at most one unit, and so is the rounding error: far below 2^ERROR_BITS.
            match y.compare(&self.weight.exact(x, limbs)) {
                Some(order) => return order == Ordering::Less,
                None => limbs += 2,
            }
        }
    }

    /// A draw from the endless blocks of one side; `None` if it is rejected.
    #[inline(never)]
    fn tail<R: CryptoRng + ?Sized>(&self, block: &Block, offset: i64, digit: u64, rng: &mut R) -> Option<i64> {
        let mut halvings = 0;
        loop {
            let zeros = rng.next_u64().leading_zeros();
            halvings += zeros;
            if zeros < 64 {
                break;
            }
        }
        let width = 1_i64 << self.width_bits;
        let away = i64::from(halvings).checked_mul(width)?;
        let x = match block.side {
            Side::LeftTail => block.start.checked_sub(away)?.checked_sub(width)?.checked_add(offset)?,
            Side::Inside | Side::RightTail => block.start.checked_add(away)?.checked_add(offset)?,
        };
        self.accepts_exactly(x, digit, block.height, halvings, rng).then_some(x)
    }
}

/// The 64 bits of `y = (0.digit…) * height / 2^32` that `digit` decides; `y` is less than two units above.
#[inline]
fn lower_digit(digit: u64, height: u64) -> u64 {
    halves((u128::from(digit) * u128::from(height)) >> 32)[0]
}

/// Blocks from the mode to one side, and the tail that closes it, if any.
fn lay<W: Weight>(weight: &W, width: i64, tail: Side, blocks: &mut Vec<Block>) {
    let right = tail == Side::RightTail;
    let step = if right { width } else { -width };
    let mut edge = weight.mode();
    loop {
        let (here, before) = (weight.estimate(edge), weight.estimate(edge - step));
        if !right && edge <= weight.lowest() {
            return;
        }
        let falls = here * (1.0 + W::GUARD) <= 0.5 * before * (1.0 - W::GUARD);
        if falls && here < TAIL_WEIGHT && edge != weight.mode() {
            blocks.push(Block { start: edge, height: height::<W>(here), sure: 0, side: tail });
            return;
        }
        // Weights fall away from the mode: highest where the block begins, lowest where it ends.
        let (start, highest, lowest) =
            if right { (edge, edge, edge + width - 1) } else { (edge - width, edge - 1, edge - width) };
        let height = if highest == weight.mode() { 1 << 32 } else { height::<W>(weight.estimate(highest)) };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 2^64, saturating")]
        let sure = (weight.estimate(lowest) * (1.0 - 2.0 * W::GUARD) * WORD_ONE) as u64;
        blocks.push(Block { start, height, sure, side: Side::Inside });
        edge += step;
    }
}

/// Rounded up.
fn height<W: Weight>(estimate: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 2^32")]
    let height = (estimate * (1.0 + 2.0 * W::GUARD) * HEIGHT_ONE).ceil() as u64;
    height.clamp(1, 1 << 32)
}

/// Vose's alias table in integers: as many cells as the next power of two, each holding the sum of all weights.
fn alias(blocks: &[Block]) -> (Vec<Cell>, u64) {
    let count = blocks.len().next_power_of_two();
    // Twice for a tail: its heights are h, h/2, h/4, ...
    let area = |block: &Block| if block.side == Side::Inside { block.height } else { 2 * block.height };
    let capacity: u64 = blocks.iter().map(area).sum();
    let mut rest: Vec<u64> = blocks.iter().map(|block| area(block) * count as u64).collect();
    rest.resize(count, 0);
    let mut cells: Vec<Cell> = (0..count).map(|own| Cell { cut: capacity, other: own }).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..count).partition(|&index| rest[index] < capacity);
    while let (Some(&high), Some(low)) = (large.last(), small.pop()) {
        cells[low] = Cell { cut: rest[low], other: high };
        rest[high] -= capacity - rest[low];
        if rest[high] < capacity {
            large.pop();
            small.push(high);
        }
    }
    (cells, capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alias_table_is_exact() {
        let block = |height, side| Block { start: 0, height, sure: 0, side };
        let blocks = [
            block(1 << 32, Side::Inside),
            block(3, Side::Inside),
            block(12_345_678, Side::Inside),
            block(1, Side::LeftTail),
            block(77, Side::RightTail),
        ];
        let (cells, capacity) = alias(&blocks);
        assert_eq!((cells.len(), capacity), (8, (1 << 32) + 3 + 12_345_678 + 2 + 154));
        let mut shares = [0; 8];
        for (own, cell) in cells.iter().enumerate() {
            shares[own] += cell.cut;
            shares[cell.other] += capacity - cell.cut;
        }
        assert_eq!(shares, [8 << 32, 24, 8 * 12_345_678, 16, 8 * 154, 0, 0, 0]);
    }
}
