//! k-means: Lloyd's algorithm on summed counts and coordinates, initialized from a sketch of all rows.
//!
//! Using a participant's row as an initial centroid would reveal it. So the seeding rounds partition space recursively, each time where the
//! summed variance is largest, until there are about eight cells per cluster. The mean and count of each cell represent its rows, and the
//! coordinator computes the initial centroids from them (`seeding`). Each further round sums the rows nearest to each centroid. The last
//! round moves no centroid and measures the published ones.

mod distance;
mod seeding;

use serde::{Deserialize, Serialize};

use super::branching::Branching;
use super::error::{AnalyticsError, counts, require, sound};
use super::private::{Part, floor};
use super::procedure::{Advanced, Procedure, Terms};
use super::sum_codec::{Field, grid_bits};
use super::table::{ColumnSpec, Range, Table, check_rows, power, ranges, round};
use crate::metrics::MetricValue;
use distance::{Representative, nearest};

/// Maximum number of clusters.
pub const MAX_CLUSTERS: u32 = 1024;
/// Maximum number of rounds of Lloyd's algorithm.
pub const MAX_ITERATIONS: u32 = 10_000;

/// Resolution, in bits, of the grid for squared distances, relative to the largest possible one.
const DISTANCE_GRID: u32 = 30;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KMeansSpec {
    /// Cap on the rows a participant contributes; of more, evenly spaced ones are used.
    pub max_rows: u32,
    /// The columns. Distances are in their units, so scale columns to give them equal influence.
    pub columns: Vec<ColumnSpec>,
    pub clusters: u32,
    /// Number of times the centroids move after the seeding.
    #[serde(default = "ten")]
    pub iterations: u32,
    /// Seeds the random choice among the seeding's cells.
    #[serde(default)]
    pub seed: u64,
}

fn ten() -> u32 {
    10
}

/// The state so far; after the last round, the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KMeansState {
    /// Number of completed rounds.
    pub round: u32,
    /// Number of rows in the last round.
    pub rows: u64,
    /// In the columns' units; empty during the seeding.
    pub centroids: Vec<Vec<f64>>,
    /// Rows nearest to each centroid: of the centroids before the last move, or of the final ones after the last round.
    pub counts: Vec<u64>,
    /// Sum of the squared distances to the same centroids.
    pub inertia: Option<f64>,
    /// The cells, during the seeding.
    cells: Branching,
    /// Means and counts of the seeding's cells: the candidates for restarting a cluster that lost all its rows.
    sketch: Vec<Representative>,
}

impl KMeansState {
    /// Index of the centroid nearest to a row, and the squared distance; `None` during the seeding.
    #[must_use]
    pub fn nearest(&self, row: &[f64]) -> Option<(usize, f64)> {
        nearest(&self.centroids, row)
    }
}

/// The procedure of a validated specification.
#[derive(Clone, Debug)]
pub(super) struct KMeans {
    spec: KMeansSpec,
    ranges: Vec<Range>,
    /// Grid resolution of coordinates, in bits.
    grid: u32,
    /// Target number of seeding cells, a power of two.
    cells: usize,
    /// Largest squared distance within the ranges.
    diameter: f64,
}

impl KMeans {
    pub(super) fn new(spec: KMeansSpec, terms: Terms) -> Result<Self, AnalyticsError> {
        check_rows(spec.max_rows)?;
        let ranges = ranges("columns", &spec.columns)?;
        require((1..=MAX_CLUSTERS).contains(&spec.clusters), "clusters", || {
            format!("is {}; it must be 1 to {MAX_CLUSTERS}", spec.clusters)
        })?;
        require((1..=MAX_ITERATIONS).contains(&spec.iterations), "iterations", || {
            format!("is {}; it must be 1 to {MAX_ITERATIONS}", spec.iterations)
        })?;
        let grid = grid_bits(spec.max_rows, terms.modulus_bits, terms.max_cohort, 12, 24);
        let cells = (8 * spec.clusters as usize).next_power_of_two().max(32);
        let diameter = ranges.iter().map(|range| range.width() * range.width()).sum();
        Ok(Self { spec, ranges, grid, cells, diameter })
    }

    fn clusters(&self) -> usize {
        self.spec.clusters as usize
    }

    /// Number of seeding rounds: the first sees one cell, each later one up to twice as many as the one before.
    fn seeding_rounds(&self) -> u32 {
        self.cells.ilog2() + 1
    }

    /// Offsets of coordinates and of distances in a contribution.
    fn offsets(&self) -> (usize, usize) {
        let coordinates = self.cells;
        (coordinates, coordinates + self.coordinates())
    }

    fn coordinates(&self) -> usize {
        2 * self.cells * self.ranges.len()
    }

    fn clipped(&self, row: &[f64], out: &mut Vec<f64>) {
        out.clear();
        out.extend(row.iter().zip(&self.ranges).map(|(value, range)| value.clamp(range.low, range.high)));
    }

    /// The mean of `rows` rows, given the sums of their coordinates on the grid.
    fn mean(&self, sums: &[i64], rows: u64) -> Vec<f64> {
        let mean = |(&sum, range): (&i64, &Range)| range.at(sum as f64 / rows as f64, self.grid);
        sums.iter().zip(&self.ranges).map(mean).collect()
    }

    fn advance_lloyd(
        &self,
        next: &mut KMeansState,
        counts: &[u64],
        sum: &[i64],
    ) -> Result<MetricValue, AnalyticsError> {
        let (coordinates, distances) = self.offsets();
        let width = self.ranges.len();
        let clusters = self.clusters();
        if sum[distances..].iter().any(|&part| part < 0) {
            return Err(AnalyticsError::Sum("a squared distance is negative".to_owned()));
        }
        let total = sum[distances..].iter().fold(0.0, |total, &part| total + part as f64);
        let inertia = total / power(DISTANCE_GRID) * self.diameter;
        next.counts = counts[..clusters].to_vec();
        next.rows = next.counts.iter().sum();
        next.inertia = Some(inertia);
        if next.round < self.rounds() {
            let mut empty = Vec::new();
            for (cluster, &rows) in counts[..clusters].iter().enumerate() {
                if rows == 0 {
                    empty.push(cluster);
                } else {
                    next.centroids[cluster] = self.mean(&sum[coordinates + cluster * width..][..width], rows);
                }
            }
            seeding::begin_again(&mut next.centroids, &empty, &next.sketch);
        }
        Ok(MetricValue { value: inertia / next.rows.max(1) as f64, count: next.rows })
    }
}

impl Procedure for KMeans {
    type State = KMeansState;

    fn fields(&self) -> Vec<Field> {
        let rows = u64::from(self.spec.max_rows);
        vec![
            Field { len: self.cells, bound: rows },
            Field { len: self.coordinates(), bound: rows << self.grid },
            Field { len: self.clusters(), bound: rows << DISTANCE_GRID },
        ]
    }

    fn rounds(&self) -> u32 {
        self.seeding_rounds() + self.spec.iterations + 1
    }

    fn done(&self, state: &KMeansState) -> u32 {
        state.round
    }

    fn initial(&self) -> KMeansState {
        KMeansState {
            round: 0,
            rows: 0,
            centroids: Vec::new(),
            counts: Vec::new(),
            inertia: None,
            cells: Branching::default(),
            sketch: Vec::new(),
        }
    }

    fn check(&self, state: &KMeansState) -> Result<(), AnalyticsError> {
        let width = self.ranges.len();
        let fits = |point: &Vec<f64>| point.len() == width && point.iter().all(|value| value.is_finite());
        sound(state.round <= self.rounds(), "it is past the last round")?;
        sound(state.inertia.is_none_or(f64::is_finite), "its inertia is not finite")?;
        sound(
            state.sketch.len() <= self.cells && state.sketch.iter().all(|one| fits(&one.mean)),
            "its sketch is wrong",
        )?;
        sound(state.centroids.iter().all(fits), "a centroid has other columns")?;
        state.cells.check(width, self.cells)?;
        let seeded = state.round >= self.seeding_rounds();
        let clusters = if seeded { self.clusters() } else { 0 };
        let counted = if state.round > self.seeding_rounds() { self.clusters() } else { 0 };
        sound(state.centroids.len() == clusters && state.counts.len() == counted, "it has another number of clusters")
    }

    fn private_parts(&self, state: &KMeansState) -> Option<Vec<Part>> {
        let (rows, width) = (f64::from(self.spec.max_rows), self.ranges.len() as f64);
        let half = self.coordinates() / 2;
        let sums = Part::new(half, rows * width.sqrt() * power(self.grid), 1.0);
        let squares = Part::new(half, sums.norm, 0.5);
        let (squares, distances) = match state.round < self.seeding_rounds() {
            true => (squares, Part::unused(self.clusters())),
            false => (Part::unused(half), Part::new(self.clusters(), rows * power(DISTANCE_GRID), 0.25)),
        };
        Some(vec![Part::new(self.cells, rows, 1.0), sums, squares, distances])
    }

    fn repair(&self, _state: &KMeansState, sum: &mut [i64], noise: &[f64]) {
        let (coordinates, distances) = self.offsets();
        let (width, half) = (self.ranges.len(), self.cells * self.ranges.len());
        // A cell without rows has a count of this size by chance, and then its mean is noise alone.
        #[expect(clippy::cast_possible_truncation, reason = "far below 2^63")]
        let least = noise.first().map_or(0, |noise| (2.0 * noise).ceil() as i64);
        for cell in 0..self.cells {
            if sum[cell] < least {
                sum[cell] = 0;
            }
            let most = sum[cell].saturating_mul(1 << self.grid);
            for start in [coordinates + cell * width, coordinates + half + cell * width] {
                sum[start..][..width].iter_mut().for_each(|sum| *sum = (*sum).clamp(0, most));
            }
        }
        floor(&mut sum[distances..]);
    }

    fn contribution(&self, state: &KMeansState, table: &Table, out: &mut [i64]) -> Result<(), AnalyticsError> {
        table.check(self.ranges.len(), |_| false)?;
        let width = self.ranges.len();
        let (coordinates, distances) = self.offsets();
        let seeding = state.round < self.seeding_rounds();
        let squares = coordinates + self.cells * width;
        let mut clipped = Vec::with_capacity(width);
        for row in table.counted(self.spec.max_rows) {
            self.clipped(table.row(row), &mut clipped);
            let at = match state.nearest(&clipped) {
                Some((cluster, distance)) if !seeding => {
                    let part = (distance / self.diameter).clamp(0.0, 1.0);
                    out[distances + cluster] += round(part * power(DISTANCE_GRID));
                    cluster
                }
                _ => state.cells.leaf_of(&clipped),
            };
            out[at] += 1;
            for (column, (&value, range)) in clipped.iter().zip(&self.ranges).enumerate() {
                let grid = range.grid(value, self.grid);
                out[coordinates + at * width + column] += grid;
                if seeding {
                    out[squares + at * width + column] += (grid * grid) >> self.grid;
                }
            }
        }
        Ok(())
    }

    fn advance(
        &self,
        state: &KMeansState,
        sum: &[i64],
        _participants: u32,
    ) -> Result<Advanced<KMeansState>, AnalyticsError> {
        let counts = counts(&sum[..self.cells])?;
        let mut next = KMeansState { round: state.round + 1, ..state.clone() };
        if state.round >= self.seeding_rounds() {
            let inertia = self.advance_lloyd(&mut next, &counts, sum)?;
            return Ok(Advanced { state: next, metrics: vec![("inertia_per_row".to_owned(), inertia)] });
        }
        next.rows = counts.iter().sum();
        let cells = self.measured_cells(&counts, sum, state.cells.leaves());
        if next.round < self.seeding_rounds() {
            seeding::cut_further(&mut next.cells, &cells, self.cells);
        } else {
            next.sketch = cells.into_iter().map(|cell| cell.representative).filter(|one| one.rows > 0).collect();
            next.centroids = seeding::centroids(&next.sketch, self.clusters(), self.ranges.as_slice(), self.spec.seed);
            next.cells = Branching::default();
        }
        Ok(Advanced { state: next, metrics: Vec::new() })
    }
}

impl KMeans {
    /// The cells with the statistics measured by a seeding round.
    fn measured_cells(&self, counts: &[u64], sum: &[i64], leaves: usize) -> Vec<seeding::Cell> {
        let width = self.ranges.len();
        let (coordinates, _) = self.offsets();
        let squares = coordinates + self.cells * width;
        let one = power(self.grid);
        let measure = |cell: usize| {
            let rows = counts[cell];
            if rows == 0 {
                return seeding::Cell::default();
            }
            let sums = &sum[coordinates + cell * width..][..width];
            let squares = &sum[squares + cell * width..][..width];
            // Variance of each column in its units, times the number of rows.
            let spread = |((&sum, &square), range): ((&i64, &i64), &Range)| {
                let mean = sum as f64 / one / rows as f64;
                let variance = (square as f64 / one / rows as f64 - mean * mean).max(0.0);
                variance * range.width() * range.width() * rows as f64
            };
            let spreads = sums.iter().zip(squares).zip(&self.ranges).map(spread).collect();
            seeding::Cell { representative: Representative { rows, mean: self.mean(sums, rows) }, spreads }
        };
        (0..leaves.min(self.cells)).map(measure).collect()
    }
}
