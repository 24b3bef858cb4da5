//! Grows one level of a tree, given the summed histograms of its open leaves.

use serde::{Deserialize, Serialize};

use super::ensemble::Tree;
use super::sample::draw_columns;
use super::spec::TreesSpec;
use crate::analytics::error::{AnalyticsError, sound};

/// An incomplete tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Growing {
    pub(super) tree: Tree,
    /// Leaves that may still be cut, in the order of their histograms.
    pub(super) open: Vec<u32>,
    /// Depth of the open leaves.
    pub(super) level: u32,
}

impl Growing {
    pub(super) fn new(outputs: usize) -> Self {
        Self { tree: Tree::leaf(vec![0.0; outputs]), open: vec![0], level: 0 }
    }

    pub(super) fn check(&self, columns: usize, depth: u32, outputs: usize) -> Result<(), AnalyticsError> {
        self.tree.check(columns, 1 << depth, outputs)?;
        sound(self.level < depth && self.open.len() <= 1 << self.level, "a growing tree is too deep")?;
        let leaves = self.tree.branching.leaves();
        let mut seen = vec![false; leaves];
        let mut fresh = |&leaf: &u32| seen.get_mut(leaf as usize).is_some_and(|seen| !std::mem::replace(seen, true));
        sound(self.open.iter().all(&mut fresh), "a growing tree's open leaves are wrong")
    }
}

/// Layout of a histogram's sums: for each leaf, column and bin, first `gradients` first derivatives, then `hessians`
/// second derivatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) columns: usize,
    pub(super) bins: usize,
    pub(super) gradients: usize,
    pub(super) hessians: usize,
}

impl Shape {
    pub(super) fn channels(self) -> usize {
        self.gradients + self.hessians
    }

    pub(super) fn leaf(self) -> usize {
        self.columns * self.bins * self.channels()
    }
}

/// Sums over the rows on one side of a cut.
#[derive(Clone, Debug, PartialEq)]
struct Side {
    gradients: Vec<f64>,
    /// As many as gradients, or one that they share.
    hessians: Vec<f64>,
}

impl Side {
    fn empty(shape: Shape) -> Self {
        Self { gradients: vec![0.0; shape.gradients], hessians: vec![0.0; shape.hessians] }
    }

    fn add(&mut self, sums: &[i64], unit: f64) {
        for (total, &sum) in self.gradients.iter_mut().chain(&mut self.hessians).zip(sums) {
            *total += sum as f64 * unit;
        }
    }

    fn without(&self, other: &Self) -> Self {
        let minus = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a - b).collect();
        Self { gradients: minus(&self.gradients, &other.gradients), hessians: minus(&self.hessians, &other.hessians) }
    }

    fn weight(&self) -> f64 {
        self.hessians.iter().sum()
    }

    /// The gradient and second derivative of each output.
    fn outputs(&self) -> impl Iterator<Item = (f64, f64)> {
        let hessians = self.hessians.iter().cycle();
        self.gradients.iter().copied().zip(hessians.copied())
    }

    /// The loss reduction of the leaf's optimal values: Σ G² / (H + λ).
    fn score(&self, l2: f64) -> f64 {
        let one = |(g, h): (f64, f64)| if h + l2 > LEAST { g * g / (h + l2) } else { 0.0 };
        self.outputs().map(one).sum()
    }

    /// The leaf's optimal values times the step, clamped.
    fn values(&self, l2: f64, step: f64) -> Vec<f64> {
        let one = |(g, h): (f64, f64)| {
            if h + l2 > LEAST { (-step * g / (h + l2)).clamp(-MOST_STEP, MOST_STEP) } else { 0.0 }
        };
        self.outputs().map(one).collect()
    }
}

/// Smaller sums of second derivatives are rounding errors.
const LEAST: f64 = 1e-6;
/// Largest magnitude of a leaf's value.
const MOST_STEP: f64 = 1000.0;
/// Smaller gains are rounding errors.
const LEAST_GAIN: f64 = 1e-9;

struct Best {
    gain: f64,
    column: usize,
    edge: usize,
    below: Side,
}

/// The inputs for growing: the specification, the bin edges and the unit of the sums.
pub(super) struct Grower<'a> {
    pub(super) spec: &'a TreesSpec,
    pub(super) shape: Shape,
    pub(super) edges: &'a [Vec<f64>],
    pub(super) unit: f64,
    /// Least sum of second derivatives on either side of a cut.
    pub(super) least: f64,
}

impl Grower<'_> {
    /// Cuts the open leaves of tree number `index` where that gains enough, given their histograms in `sums`. The new
    /// leaves that may be cut are open next.
    pub(super) fn level(&self, growing: &mut Growing, index: usize, sums: &[i64]) {
        let (l2, step) = (self.spec.l2(), self.spec.step());
        let mut open = Vec::new();
        for (&leaf, sums) in growing.open.iter().zip(sums.chunks_exact(self.shape.leaf())) {
            let total = self.total(sums);
            growing.tree.values[leaf as usize] = total.values(l2, step);
            let count = self.spec.columns_per_cut(self.shape.columns);
            let drawn = draw_columns(self.shape.columns, count, self.spec.seed, index, leaf, growing.level);
            let Some(best) = self.best(sums, &total, &drawn) else { continue };
            let threshold = self.edges[best.column][best.edge];
            let column = u32::try_from(best.column).unwrap_or_default();
            let fresh = growing.tree.branching.cut(leaf, column, threshold);
            growing.tree.values[leaf as usize] = best.below.values(l2, step);
            growing.tree.values.push(total.without(&best.below).values(l2, step));
            open.extend([leaf, fresh]);
        }
        growing.level += 1;
        if growing.level >= self.spec.depth {
            open.clear();
        }
        growing.open = open;
    }

    /// The total over all bins; every column gives the same, so the first is used.
    fn total(&self, sums: &[i64]) -> Side {
        let mut total = Side::empty(self.shape);
        let first = &sums[..self.shape.bins * self.shape.channels()];
        first.chunks_exact(self.shape.channels()).for_each(|sums| total.add(sums, self.unit));
        total
    }

    /// The cut with the largest gain, if any gains enough; the first of several.
    fn best(&self, sums: &[i64], total: &Side, columns: &[usize]) -> Option<Best> {
        let (l2, least) = (self.spec.l2(), self.least);
        let parent = total.score(l2);
        let mut best: Option<Best> = None;
        for &column in columns {
            let length = self.shape.bins * self.shape.channels();
            let bins = sums[column * length..][..length].chunks_exact(self.shape.channels());
            let mut below = Side::empty(self.shape);
            for (edge, sums) in bins.take(self.edges[column].len()).enumerate() {
                below.add(sums, self.unit);
                let above = total.without(&below);
                if below.weight() < least || above.weight() < least || sums.iter().all(|&sum| sum == 0) {
                    continue;
                }
                let gain = below.score(l2) + above.score(l2) - parent;
                let enough = gain > best.as_ref().map_or(self.spec.min_gain.max(LEAST_GAIN), |best| best.gain);
                if enough {
                    best = Some(Best { gain, column, edge, below: below.clone() });
                }
            }
        }
        best
    }
}
