//! The rows of a tree, and the columns available to a cut: the same in every round, without state.
//!
//! The draw depends on a row's values and on the number of equal rows before it, not on the participant. So a federation grows the same
//! trees as a single table with all rows, if different participants hold different rows.

use std::collections::HashMap;

use rand::{Rng, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// SplitMix64's finish (Steele, Lea and Flood 2014).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Numbers each row.
#[derive(Default)]
pub(super) struct RowNumbers(HashMap<u64, u64>);

impl RowNumbers {
    pub(super) fn next(&mut self, row: &[f64], target: f64) -> u64 {
        // Zero has two signs but is one value.
        let bits = |value: f64| (value + 0.0).to_bits();
        let content = row.iter().fold(mix(bits(target)), |number, &value| mix(number ^ bits(value)));
        let earlier = self.0.entry(content).or_default();
        *earlier += 1;
        mix(content ^ *earlier)
    }
}

/// Whether a tree sees the row with this number.
pub(super) fn is_drawn(row: u64, seed: u64, tree: usize, fraction: f64) -> bool {
    let unit = (mix(row ^ mix(seed ^ mix(tree as u64))) >> 11) as f64 / 9_007_199_254_740_992.0;
    unit < fraction
}

/// `count` of `columns` columns, ascending.
pub(super) fn draw_columns(columns: usize, count: usize, seed: u64, tree: usize, leaf: u32, level: u32) -> Vec<usize> {
    let mut drawn: Vec<usize> = (0..columns).collect();
    if count < columns {
        let place = mix(tree as u64) ^ (u64::from(leaf) << 32) ^ u64::from(level);
        let mut rng = ChaCha8Rng::seed_from_u64(mix(seed ^ mix(place)));
        for index in 0..count {
            // At most 4096 columns: the bias of the remainder is below 2^-52.
            let other = usize::try_from(rng.next_u64() % (columns - index) as u64).unwrap_or_default();
            drawn.swap(index, index + other);
        }
        drawn.truncate(count);
        drawn.sort_unstable();
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tree_sees_its_part_of_the_rows() {
        let mut numbers = RowNumbers::default();
        let rows: Vec<u64> = (0..10_000).map(|i| numbers.next(&[f64::from(i % 100), 1.0], 0.0)).collect();
        let drawn = |tree| rows.iter().map(|&row| is_drawn(row, 7, tree, 0.632)).collect::<Vec<_>>();
        let (first, second) = (drawn(0), drawn(1));
        for seen in [&first, &second] {
            let share = seen.iter().filter(|&&seen| seen).count();
            assert!((6100..6540).contains(&share), "{share}");
        }
        let both = first.iter().zip(&second).filter(|&(&a, &b)| a && b).count();
        assert!((3800..4200).contains(&both), "independent: {both}");
        assert!(rows.iter().all(|&row| is_drawn(row, 7, 0, 1.0)));
    }

    #[test]
    fn columns_are_drawn_without_replacement() {
        let drawn = draw_columns(10, 4, 1, 2, 3, 4);
        assert_eq!((drawn.len(), drawn.is_sorted_by(|a, b| a < b)), (4, true));
        assert_eq!(drawn, draw_columns(10, 4, 1, 2, 3, 4));
        assert!((0..20).any(|leaf| draw_columns(10, 4, 1, 2, leaf, 4) != drawn));
        assert_eq!(draw_columns(3, 3, 1, 2, 3, 4), [0, 1, 2]);
    }
}
