//! Order statistics of many columns at once, without sorting and without a branch.
//!
//! The k-th smallest of a column is found bit by bit, from the highest: a bit is set if at most k values lie below the value with that bit
//! set. Sixteen passes of comparing and counting over a tile within a first-level cache serve all columns of the tile side by side, for any
//! values.

use std::ops::Range;

use crate::robust::Inputs;

/// Columns of a tile.
pub(super) const LANES: usize = 64;
/// One vector's values in the columns of a tile.
pub(super) type Row = [i16; LANES];

/// Copies columns into consecutive tiles, each with one row per vector. Unused columns of the last tile are zero.
pub(super) fn load(inputs: Inputs<'_>, columns: Range<usize>, tiles: &mut Vec<Row>) {
    let vectors = inputs.vectors();
    tiles.clear();
    tiles.resize(columns.len().div_ceil(LANES) * vectors.len(), [0; LANES]);
    for (row, vector) in vectors.iter().enumerate() {
        for (tile, values) in vector[columns.clone()].chunks(LANES).enumerate() {
            tiles[tile * vectors.len() + row][..values.len()].copy_from_slice(values);
        }
    }
}

/// Twice the median of every column of the tiles.
#[inline(always)]
pub(super) fn median(tiles: &[Row], vectors: usize, out: &mut [i32]) {
    for (rows, out) in tiles.chunks(vectors).zip(out.chunks_mut(LANES)) {
        let low = kth(rows, (vectors - 1) / 2);
        let high = if vectors.is_multiple_of(2) { next(rows, &low, vectors / 2) } else { low };
        for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
            *out = i32::from(low) + i32::from(high);
        }
    }
}

/// The trimmed sum of every column of the tiles, without its `trim` smallest and largest values.
#[inline(always)]
pub(super) fn trimmed_sum(tiles: &[Row], vectors: usize, trim: usize, out: &mut [i32]) {
    let cut = i32::try_from(trim).expect("there are at most 4096 vectors");
    for (rows, out) in tiles.chunks(vectors).zip(out.chunks_mut(LANES)) {
        let (low, high) = (kth(rows, trim), kth(rows, vectors - 1 - trim));
        // Trimmed values count as the value at the cut, which is then subtracted as often: ties need no special case.
        let mut sum = [0i32; LANES];
        for row in rows {
            for lane in 0..LANES {
                sum[lane] += i32::from(row[lane].max(low[lane]).min(high[lane]));
            }
        }
        for (lane, out) in out.iter_mut().enumerate() {
            *out = sum[lane] - cut * (i32::from(low[lane]) + i32::from(high[lane]));
        }
    }
}

/// The value of rank `k`, from 0, in each column.
#[inline(always)]
fn kth(rows: &[Row], k: usize) -> Row {
    let k = count(k);
    let mut found = [i16::MIN; LANES];
    for bit in (0..16).rev() {
        // Starts from the smallest value: the sign bit counts downwards.
        let step = if bit == 15 { i16::MIN } else { 1 << bit };
        let mut tried = found;
        tried.iter_mut().for_each(|value| *value ^= step);
        let below = count_below(rows, &tried);
        for lane in 0..LANES {
            found[lane] = if below[lane] <= k { tried[lane] } else { found[lane] };
        }
    }
    found
}

/// The number of values below `limit` in each column.
#[inline(always)]
fn count_below(rows: &[Row], limit: &Row) -> Row {
    let mut below = [0i16; LANES];
    for row in rows {
        for lane in 0..LANES {
            below[lane] += i16::from(row[lane] < limit[lane]);
        }
    }
    below
}

/// The value of rank `k` in each column, if `low` has the rank before it.
#[inline(always)]
fn next(rows: &[Row], low: &Row, k: usize) -> Row {
    let k = count(k);
    let (mut not_above, mut least_above) = ([0i16; LANES], [i16::MAX; LANES]);
    for row in rows {
        for lane in 0..LANES {
            let above = row[lane] > low[lane];
            not_above[lane] += i16::from(!above);
            least_above[lane] = least_above[lane].min(if above { row[lane] } else { i16::MAX });
        }
    }
    let mut found = *low;
    for lane in 0..LANES {
        found[lane] = if not_above[lane] > k { low[lane] } else { least_above[lane] };
    }
    found
}

fn count(number: usize) -> i16 {
    i16::try_from(number).expect("there are at most 4096 vectors")
}
