//! Decision trees from summed histograms: gradient boosting and random forests.
//!
//! The first rounds sketch each column's quantiles, which become bin edges. Each further round grows the current trees
//! by one level: a participant sums the first and second derivatives of its rows' losses for every open leaf, column
//! and bin, and the sum of these histograms yields the same cuts as a single table with all rows would. A forest uses
//! fixed derivatives: the gain of a cut is then the reduction of variance or, for classes, of Gini impurity. A single
//! tree holds one number per class in each leaf. The last round grows nothing and measures the published trees.

mod ensemble;
mod grow;
mod sample;
mod sketch;
mod spec;

pub use ensemble::{Ensemble, Prediction, Tree};
pub use spec::{MAX_BINS, MAX_CLASSES, MAX_DEPTH, MAX_TREES, Method, TargetSpec, TreesSpec};

use serde::{Deserialize, Serialize};

use super::error::{AnalyticsError, require, sound};
use super::private::{Part, floor};
use super::procedure::{Advanced, MAX_STATE_BYTES, Procedure, Terms};
use super::sum_codec::{Field, grid_bits};
use super::table::{Range, Table, power, round};
use crate::metrics::MetricValue;
use grow::{Grower, Growing, Shape};
use sample::RowNumbers;

/// Resolution, in bits, of the grid on which a participant sums its own rows, and on which targets are summed.
const FINE: u32 = 30;
/// Name of the metric of the mean loss.
const LOSS_METRIC: &str = "train_loss";
/// Resolution, in bits, of the grid for losses, which are at most 16.
const LOSS_GRID: u32 = 16;

/// The state so far; after the last round, the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreesState {
    /// Number of completed rounds.
    pub round: u32,
    /// Number of rows in the last round.
    pub rows: u64,
    /// Mean loss over these rows: of the trees before the last growth, or of the final ones after the last round.
    pub loss: Option<f64>,
    /// Share of these rows whose class was predicted correctly.
    pub accuracy: Option<f64>,
    /// The completed trees.
    pub ensemble: Ensemble,
    /// Bin edges of each column.
    edges: Vec<Vec<f64>>,
    growing: Vec<Growing>,
}

/// The procedure of a validated specification.
#[derive(Clone, Debug)]
pub(super) struct Trees {
    spec: TreesSpec,
    ranges: Vec<Range>,
    shape: Shape,
    /// Resolution of the histogram grid, in bits.
    grid: u32,
}

/// Offsets of the parts of a contribution.
const ROWS: usize = 0;
const RIGHT: usize = 1;
const LOSS: usize = 2;
const TARGETS: usize = 3;

impl Trees {
    pub(super) fn new(spec: TreesSpec, terms: Terms) -> Result<Self, AnalyticsError> {
        let ranges = spec.check()?;
        let outputs = spec.target.outputs();
        let boosted_classes = spec.method == Method::Boosting && matches!(spec.target, TargetSpec::Class { .. });
        let shape = Shape {
            columns: ranges.len(),
            bins: spec.bins as usize,
            gradients: outputs,
            hessians: if boosted_classes { outputs } else { 1 },
        };
        let leaves = f64::from(spec.trees) * power(spec.depth);
        let bytes = leaves * (90.0 + 25.0 * outputs as f64) + (ranges.len() * shape.bins * 25) as f64;
        require(bytes <= MAX_STATE_BYTES as f64, "trees", || {
            format!(
                "{} trees of depth {} with {outputs} numbers per leaf could take {:.0} MiB; at most {} MiB are possible: \
                 lower trees or depth",
                spec.trees,
                spec.depth,
                bytes / 1_048_576.0,
                MAX_STATE_BYTES >> 20
            )
        })?;
        let grid = grid_bits(spec.max_rows, terms.modulus_bits, terms.max_cohort, 8, 20);
        Ok(Self { spec, ranges, shape, grid })
    }

    fn outputs(&self) -> usize {
        self.shape.gradients
    }

    fn histograms(&self) -> usize {
        TARGETS + self.outputs()
    }

    /// Number of sums in the histograms of a contribution.
    fn all_histograms(&self) -> usize {
        (self.spec.trees_per_round as usize).saturating_mul(self.leaves()).saturating_mul(self.shape.leaf())
    }

    /// Largest sum of the squares of a row's derivatives.
    fn most_square(&self) -> f64 {
        let outputs = self.outputs() as f64;
        // Probabilities that differ from a class by p - t, and p (1 - p) of each; otherwise one number, or one class, and 1.
        match (self.spec.method, self.spec.target) {
            (Method::Boosting, TargetSpec::Class { .. }) => outputs.min(2.0) + outputs / 16.0,
            (Method::Boosting, TargetSpec::Real { .. }) | (Method::Forest, _) => 2.0,
        }
    }

    /// Maximum number of open leaves of one tree.
    fn leaves(&self) -> usize {
        1 << (self.spec.depth - 1)
    }

    /// The target outputs of a row: numbers from 0 to 1.
    fn target(&self, value: f64, out: &mut Vec<f64>) {
        out.clear();
        match self.spec.target {
            TargetSpec::Real { low, high } => out.push(Range { low, high }.unit(value)),
            TargetSpec::Class { .. } if self.outputs() == 1 => out.push(value),
            TargetSpec::Class { classes } => {
                out.extend((0..classes).map(|class| if f64::from(class) == value { 1.0 } else { 0.0 }));
            }
        }
    }

    /// First and second derivatives of a row's loss at the trees' prediction.
    fn derivatives(&self, predicted: &[f64], target: &[f64], out: &mut [i64]) {
        let fine = |value: f64| round(value.clamp(-1.0, 1.0) * power(FINE));
        let (gradients, hessians) = out.split_at_mut(self.shape.gradients);
        for ((out, p), t) in gradients.iter_mut().zip(predicted).zip(target) {
            *out = match self.spec.method {
                Method::Boosting => fine(p - t),
                Method::Forest => fine(-t),
            };
        }
        if self.spec.method == Method::Boosting && matches!(self.spec.target, TargetSpec::Class { .. }) {
            hessians.iter_mut().zip(predicted).for_each(|(out, p)| *out = fine(p * (1.0 - p)));
        } else {
            hessians.fill(1 << FINE);
        }
    }

    fn is_right(&self, predicted: &[f64], target: &[f64]) -> bool {
        let class = |values: &[f64]| match values {
            [one] => usize::from(*one > 0.5),
            _ => values.iter().enumerate().reduce(|a, b| if b.1 > a.1 { b } else { a }).map_or(0, |(class, _)| class),
        };
        matches!(self.spec.target, TargetSpec::Class { .. }) && class(predicted) == class(target)
    }

    /// Adds a row to the histograms of the open leaves that it falls into.
    fn add_row(&self, state: &TreesState, row: &[f64], number: u64, derivatives: &[i64], out: &mut [i64]) {
        let (seed, fraction) = (self.spec.seed, self.spec.row_fraction());
        let mut bins = Vec::new();
        for (index, growing) in state.growing.iter().enumerate() {
            let tree = state.ensemble.trees.len() + index;
            let leaf = growing.tree.branching.leaf_of(row);
            let place = growing.open.iter().position(|&open| open as usize == leaf);
            let Some(place) = place.filter(|_| sample::is_drawn(number, seed, tree, fraction)) else { continue };
            if bins.is_empty() {
                let bin = |(edges, &value): (&Vec<f64>, &f64)| sketch::bin_of(edges, value);
                bins.extend(state.edges.iter().zip(row).map(bin));
            }
            let start = (index * self.leaves() + place) * self.shape.leaf();
            for (column, &bin) in bins.iter().enumerate() {
                let start = start + (column * self.shape.bins + bin) * derivatives.len();
                for (sum, value) in out[start..][..derivatives.len()].iter_mut().zip(derivatives) {
                    *sum += value;
                }
            }
        }
    }

    /// The edges after one more sketch round; after the first one, also the base prediction.
    fn advance_sketch(&self, next: &mut TreesState, sum: &[i64], rows: u64) {
        let counts = sum[self.histograms()..].chunks_exact(self.shape.bins);
        for ((edges, &range), counts) in next.edges.iter_mut().zip(&self.ranges).zip(counts) {
            *edges = sketch::balance(range, edges, counts, self.spec.bins);
        }
        if next.round == 1 && rows > 0 {
            let share = |&sum: &i64| (sum as f64 / power(FINE) / rows as f64).clamp(0.0, 1.0);
            let shares = sum[TARGETS..self.histograms()].iter().map(share);
            let logit = |share: f64| {
                let share = share.clamp(1e-6, 1.0 - 1e-6);
                // With several classes only differences between scores matter.
                if self.outputs() == 1 { libm::log(share / (1.0 - share)) } else { libm::log(share) }
            };
            next.ensemble.base = match (self.spec.method, self.spec.target) {
                (Method::Boosting, TargetSpec::Class { .. }) => shares.map(logit).collect(),
                _ => shares.collect(),
            };
        }
    }

    /// Starts new trees if none are growing and some are missing.
    fn plant(&self, state: &mut TreesState) {
        let missing = (self.spec.trees as usize).saturating_sub(state.ensemble.trees.len());
        if state.growing.is_empty() {
            let count = missing.min(self.spec.trees_per_round as usize);
            state.growing = vec![Growing::new(self.outputs()); count];
        }
    }

    fn advance_trees(&self, next: &mut TreesState, sum: &[i64], noise: f64) {
        let unit = 1.0 / power(self.grid);
        // A side of a cut sums up to all bins of the second derivatives; a smaller sum may be noise alone.
        let by_chance = 2.0 * noise * unit * ((self.shape.bins * self.shape.hessians) as f64).sqrt();
        let least = self.spec.min_child_weight.max(by_chance);
        let grower = Grower { spec: &self.spec, shape: self.shape, edges: &next.edges, unit, least };
        let done = next.ensemble.trees.len();
        let sums = sum[self.histograms()..].chunks_exact(self.leaves() * self.shape.leaf());
        for (index, (growing, sums)) in next.growing.iter_mut().zip(sums).enumerate() {
            grower.level(growing, done + index, sums);
        }
        // Trees are completed together, so that a tree's number does not depend on its neighbours.
        if next.growing.iter().all(|growing| growing.open.is_empty()) {
            next.ensemble.trees.extend(next.growing.drain(..).map(|growing| growing.tree));
        }
    }

    fn measured(&self, next: &mut TreesState, sum: &[i64]) -> Vec<(String, MetricValue)> {
        let rows = next.rows.max(1) as f64;
        let loss = sum[LOSS] as f64 / power(LOSS_GRID) / rows;
        next.loss = Some(loss);
        let mut metrics = vec![(LOSS_METRIC.to_owned(), MetricValue { value: loss, count: next.rows })];
        if matches!(self.spec.target, TargetSpec::Class { .. }) {
            let accuracy = sum[RIGHT] as f64 / rows;
            next.accuracy = Some(accuracy);
            metrics.push(("train_accuracy".to_owned(), MetricValue { value: accuracy, count: next.rows }));
        }
        metrics
    }
}

impl Procedure for Trees {
    type State = TreesState;

    fn fields(&self) -> Vec<Field> {
        let rows = u64::from(self.spec.max_rows);
        let histograms = self.all_histograms();
        vec![
            Field { len: 2, bound: rows },
            Field { len: 1, bound: (16 * rows) << LOSS_GRID },
            Field { len: self.outputs(), bound: rows << FINE },
            Field { len: histograms, bound: rows << self.grid },
        ]
    }

    fn rounds(&self) -> u32 {
        self.spec.sketch_rounds + self.spec.trees.div_ceil(self.spec.trees_per_round) * self.spec.depth + 1
    }

    fn done(&self, state: &TreesState) -> u32 {
        state.round
    }

    fn initial(&self) -> TreesState {
        let ensemble = Ensemble {
            method: self.spec.method,
            target: self.spec.target,
            base: vec![0.0; self.outputs()],
            trees: Vec::new(),
        };
        let edges = self.ranges.iter().map(|&range| sketch::equal_parts(range, self.spec.bins)).collect();
        TreesState { round: 0, rows: 0, loss: None, accuracy: None, ensemble, edges, growing: Vec::new() }
    }

    fn check(&self, state: &TreesState) -> Result<(), AnalyticsError> {
        let (columns, outputs) = (self.ranges.len(), self.outputs());
        let Ensemble { method, target, base, trees } = &state.ensemble;
        sound(state.round <= self.rounds(), "it is past the last round")?;
        sound(*method == self.spec.method && *target == self.spec.target, "its trees predict something else")?;
        sound(base.len() == outputs && base.iter().all(|value| value.is_finite()), "its base is wrong")?;
        let measured = [state.loss, state.accuracy];
        sound(measured.iter().flatten().all(|value| value.is_finite()), "its loss is not finite")?;
        let good = |edges: &Vec<f64>| {
            edges.len() < self.shape.bins && edges.iter().all(|e| e.is_finite()) && edges.is_sorted_by(|a, b| a < b)
        };
        sound(state.edges.len() == columns && state.edges.iter().all(good), "a column's bins are wrong")?;
        let all = trees.len() + state.growing.len();
        let most = state.growing.len() <= self.spec.trees_per_round as usize && all <= self.spec.trees as usize;
        sound(most, "it has too many trees")?;
        let level = state.growing.first().map(|growing| growing.level);
        sound(state.growing.iter().all(|growing| Some(growing.level) == level), "its trees grow out of step")?;
        trees.iter().try_for_each(|tree| tree.check(columns, 1 << self.spec.depth, outputs))?;
        state.growing.iter().try_for_each(|growing| growing.check(columns, self.spec.depth, outputs))
    }

    fn private_parts(&self, state: &TreesState) -> Option<Vec<Part>> {
        let rows = f64::from(self.spec.max_rows);
        let (all, columns) = (self.all_histograms(), self.shape.columns as f64);
        let row = |share: f64| Part::new(1, rows, share);
        // Losses can be large, and nothing is computed from them.
        let loss = Part::unused(1);
        if state.round < self.spec.sketch_rounds {
            let targets = Part::new(self.outputs(), rows * power(FINE), 0.5);
            let cells = self.shape.columns * self.shape.bins;
            let counts = Part::new(cells, rows * columns.sqrt(), 1.0);
            return Some(vec![row(0.5), Part::unused(1), loss, targets, counts, Part::unused(all - cells)]);
        }
        let trees = state.growing.len().max(1) as f64;
        let norm = rows * (trees * columns * self.most_square()).sqrt() * power(self.grid);
        let histograms = if state.growing.is_empty() { Part::unused(all) } else { Part::new(all, norm, 1.0) };
        Some(vec![row(0.25), row(0.25), loss, Part::unused(self.outputs()), histograms])
    }

    fn repair(&self, state: &TreesState, sum: &mut [i64], _noise: &[f64]) {
        let (head, histograms) = sum.split_at_mut(self.histograms());
        floor(head);
        head[RIGHT] = head[RIGHT].min(head[ROWS]);
        if state.round < self.spec.sketch_rounds {
            floor(histograms);
        } else {
            // Gradients have a sign.
            histograms
                .chunks_exact_mut(self.shape.channels())
                .for_each(|sums| floor(&mut sums[self.shape.gradients..]));
        }
    }

    fn advance_noised(
        &self,
        state: &TreesState,
        sum: &[i64],
        _participants: u32,
        noise: &[f64],
    ) -> Result<Advanced<TreesState>, AnalyticsError> {
        let noise = noise.last().copied().unwrap_or_default();
        let mut next = self.advance_with(state, sum, noise)?;
        next.state.loss = None;
        next.metrics.retain(|(name, _)| name != LOSS_METRIC);
        Ok(next)
    }

    fn contribution(&self, state: &TreesState, table: &Table, out: &mut [i64]) -> Result<(), AnalyticsError> {
        table.check(self.ranges.len(), |_| false)?;
        self.spec.check_targets(table)?;
        let sketching = state.round < self.spec.sketch_rounds;
        let mut numbers = RowNumbers::default();
        let (mut target, mut predicted) = (Vec::new(), Vec::new());
        let mut derivatives = vec![0; self.shape.channels()];
        let (head, histograms) = out.split_at_mut(self.histograms());
        for index in table.counted(self.spec.max_rows) {
            let (row, value) = (table.row(index), table.targets()[index]);
            self.target(value, &mut target);
            head[ROWS] += 1;
            if sketching {
                for (sum, &part) in head[TARGETS..].iter_mut().zip(&target) {
                    *sum += round(part * power(FINE));
                }
                for (column, (edges, &value)) in state.edges.iter().zip(row).enumerate() {
                    histograms[column * self.shape.bins + sketch::bin_of(edges, value)] += 1;
                }
                continue;
            }
            state.ensemble.scores(row, &mut predicted);
            state.ensemble.interpret(&mut predicted);
            head[RIGHT] += i64::from(self.is_right(&predicted, &target));
            head[LOSS] += round(state.ensemble.loss(&predicted, &target) * power(LOSS_GRID));
            self.derivatives(&predicted, &target, &mut derivatives);
            self.add_row(state, row, numbers.next(row, value), &derivatives, histograms);
        }
        if !sketching {
            // Rounds from the participant's grid to that of the sum, to nearest.
            let (shift, half) = (FINE - self.grid, 1 << (FINE - self.grid) >> 1);
            histograms.iter_mut().for_each(|sum| *sum = (*sum + half) >> shift);
        }
        Ok(())
    }

    fn advance(
        &self,
        state: &TreesState,
        sum: &[i64],
        _participants: u32,
    ) -> Result<Advanced<TreesState>, AnalyticsError> {
        self.advance_with(state, sum, 0.0)
    }
}

impl Trees {
    /// The next state; `noise` is the standard deviation of the noise in each sum of the histograms.
    fn advance_with(
        &self,
        state: &TreesState,
        sum: &[i64],
        noise: f64,
    ) -> Result<Advanced<TreesState>, AnalyticsError> {
        let mut next = TreesState { round: state.round + 1, ..state.clone() };
        next.rows = u64::try_from(sum[ROWS]).map_err(|_| AnalyticsError::Sum("a count is negative".to_owned()))?;
        let rows = next.rows;
        let metrics = if state.round < self.spec.sketch_rounds {
            self.advance_sketch(&mut next, sum, rows);
            Vec::new()
        } else {
            let metrics = self.measured(&mut next, sum);
            self.advance_trees(&mut next, sum, noise);
            metrics
        };
        if (self.spec.sketch_rounds..self.rounds() - 1).contains(&next.round) {
            self.plant(&mut next);
        }
        Ok(Advanced { state: next, metrics })
    }
}
