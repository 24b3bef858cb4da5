//! A binary space partition: the structure of decision trees and of the k-means seeding.

use serde::{Deserialize, Serialize};

use super::error::{AnalyticsError, sound};

/// Where a cut leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// Index of another cut, always after this one in the list.
    Cut(u32),
    Leaf(u32),
}

/// One cut: rows below the threshold go one way, all others the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Index of the column it tests, from 0.
    pub column: u32,
    /// In the column's own units.
    pub threshold: f64,
    /// Where rows with `value < threshold` go.
    pub below: Next,
    /// Where the others go.
    pub above: Next,
}

/// All cuts, the root first. Without cuts there is a single leaf, number 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Branching {
    cuts: Vec<Cut>,
}

impl Branching {
    /// The cuts, the root first.
    #[must_use]
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// Number of leaves; they are numbered from 0 without gaps.
    #[must_use]
    pub fn leaves(&self) -> usize {
        self.cuts.len() + 1
    }

    /// The leaf of a row. Columns missing from the row count as 0.
    #[must_use]
    pub fn leaf_of(&self, row: &[f64]) -> usize {
        let mut at = self.cuts.first();
        while let Some(cut) = at {
            let value = row.get(cut.column as usize).copied().unwrap_or_default();
            match if value < cut.threshold { cut.below } else { cut.above } {
                Next::Leaf(leaf) => return leaf as usize,
                Next::Cut(index) => at = self.cuts.get(index as usize),
            }
        }
        0
    }

    /// Cuts a leaf. The side below the threshold keeps the leaf's number; the other side becomes a new leaf. Returns its number.
    pub(super) fn cut(&mut self, leaf: u32, column: u32, threshold: f64) -> u32 {
        let small = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let (index, fresh) = (small(self.cuts.len()), small(self.leaves()));
        for cut in &mut self.cuts {
            for next in [&mut cut.below, &mut cut.above] {
                if *next == Next::Leaf(leaf) {
                    *next = Next::Cut(index);
                }
            }
        }
        self.cuts.push(Cut { column, threshold, below: Next::Leaf(leaf), above: Next::Leaf(fresh) });
        fresh
    }

    /// Validates a deserialized partition: every cut and leaf is reached exactly once, and every walk ends.
    pub(super) fn check(&self, columns: usize, most_leaves: usize) -> Result<(), AnalyticsError> {
        sound(self.leaves() <= most_leaves, "a tree has too many leaves")?;
        let mut cuts = vec![false; self.cuts.len()];
        let mut leaves = vec![false; self.leaves()];
        if let Some(root) = cuts.first_mut() {
            *root = true;
        } else {
            return Ok(());
        }
        for (index, cut) in self.cuts.iter().enumerate() {
            sound((cut.column as usize) < columns, "a tree cuts a column that is not there")?;
            sound(cut.threshold.is_finite(), "a threshold is not finite")?;
            for next in [cut.below, cut.above] {
                let seen = match next {
                    Next::Cut(next) if next as usize > index => cuts.get_mut(next as usize),
                    Next::Cut(_) => None,
                    Next::Leaf(leaf) => leaves.get_mut(leaf as usize),
                };
                let fresh = seen.is_some_and(|seen| !std::mem::replace(seen, true));
                sound(fresh, "a tree's branches do not fit together")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_lead_every_row_to_its_leaf() {
        let mut tree = Branching::default();
        assert_eq!(tree.leaf_of(&[1.0, 2.0]), 0);
        assert_eq!(tree.cut(0, 0, 5.0), 1);
        assert_eq!(tree.cut(1, 1, 0.0), 2);
        assert_eq!(tree.cut(0, 1, 1.0), 3);
        tree.check(2, 4).unwrap();
        assert_eq!(tree.leaf_of(&[4.9, 0.9]), 0);
        assert_eq!(tree.leaf_of(&[4.9, 1.0]), 3);
        assert_eq!(tree.leaf_of(&[5.0, -1.0]), 1);
        assert_eq!(tree.leaf_of(&[5.0, 0.0]), 2);
        assert!(tree.check(1, 4).is_err());
        assert!(tree.check(2, 3).is_err());
    }

    #[test]
    fn a_tree_that_is_none_is_refused() {
        let cut = |below, above| Cut { column: 0, threshold: 0.0, below, above };
        let bad = [
            vec![cut(Next::Cut(0), Next::Leaf(0))],
            vec![cut(Next::Leaf(0), Next::Leaf(0))],
            vec![cut(Next::Leaf(0), Next::Leaf(2))],
            vec![cut(Next::Leaf(0), Next::Leaf(1)), cut(Next::Leaf(2), Next::Leaf(1))],
            vec![cut(Next::Cut(1), Next::Cut(1)), cut(Next::Leaf(0), Next::Leaf(1))],
            vec![cut(Next::Cut(7), Next::Leaf(1))],
        ];
        for cuts in bad {
            assert!(Branching { cuts: cuts.clone() }.check(1, 100).is_err(), "{cuts:?}");
        }
        let infinite = Cut { threshold: f64::INFINITY, ..cut(Next::Leaf(0), Next::Leaf(1)) };
        assert!(Branching { cuts: vec![infinite] }.check(1, 100).is_err());
    }
}
