//! Initial centroids from summed cells.
//!
//! A cell is cut at its mean along the column of largest variance (Su and Dy 2007, "Var-Part"); cells with the largest
//! sum of squares are cut first. Weighted k-means++ (Arthur and Vassilvitskii 2007) and Lloyd's algorithm then run on
//! the cells' means from several random starts, and the best result is kept.

use rand::{Rng, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::distance::{Representative, nearest, squared_distance};
use crate::analytics::branching::Branching;
use crate::analytics::table::Range;

/// A cell with its measured statistics.
#[derive(Default)]
pub(super) struct Cell {
    pub(super) representative: Representative,
    /// Sum of squares about the mean, per column.
    pub(super) spreads: Vec<f64>,
}

impl Cell {
    /// Total sum of squares, and the column with the largest.
    fn worst(&self) -> (f64, usize) {
        let column = self.spreads.iter().enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best });
        (self.spreads.iter().sum(), column.map_or(0, |(column, _)| column))
    }
}

/// Cuts the cells with the largest sums of squares, each at most once, up to `most` cells in total.
pub(super) fn cut_further(branching: &mut Branching, cells: &[Cell], most: usize) {
    let worth = |(leaf, cell): (usize, &Cell)| {
        let (spread, column) = cell.worst();
        (cell.representative.rows > 1 && spread > 0.0).then_some((spread, leaf, column))
    };
    let mut cuts: Vec<_> = cells.iter().enumerate().filter_map(worth).collect();
    // Ties are broken by cell order, so that all replicas cut alike.
    cuts.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    for (_, leaf, column) in cuts.into_iter().take(most.saturating_sub(branching.leaves())) {
        let threshold = cells[leaf].representative.mean[column];
        let small = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        branching.cut(small(leaf), small(column), threshold);
    }
}

/// Bound on the work, in floating-point operations.
const EFFORT: usize = 400_000_000;
const MOST_DRAWS: usize = 32;
const STEPS: usize = 25;

/// The best of several weighted k-means runs on the representatives; the middle of the ranges if there are none.
pub(super) fn centroids(sketch: &[Representative], clusters: usize, ranges: &[Range], seed: u64) -> Vec<Vec<f64>> {
    if sketch.is_empty() {
        let middle = ranges.iter().map(|range| range.at(0.5, 0)).collect();
        return vec![middle; clusters];
    }
    let mut key = *b"--------tributary k-means cells.";
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut rng = ChaCha8Rng::from_seed(key);
    let effort = sketch.len() * clusters * ranges.len().max(1) * (STEPS + 1);
    let draws = (EFFORT / effort).clamp(1, MOST_DRAWS);
    let run = |_| {
        let mut found = draw(sketch, clusters, &mut rng);
        let inertia = settle(sketch, &mut found);
        (inertia, found)
    };
    let best = (0..draws).map(run).reduce(|best, next| if next.0 < best.0 { next } else { best });
    best.map(|(_, found)| found).unwrap_or_default()
}

/// k-means++: picks each next centroid with a probability proportional to its rows times the squared distance to the
/// nearest one so far.
fn draw(sketch: &[Representative], clusters: usize, rng: &mut impl Rng) -> Vec<Vec<f64>> {
    let mut weights: Vec<f64> = sketch.iter().map(|one| one.rows as f64).collect();
    let mut distances = vec![f64::INFINITY; sketch.len()];
    let mut found: Vec<Vec<f64>> = Vec::with_capacity(clusters);
    while found.len() < clusters {
        let chosen = &sketch[pick(&weights, rng)].mean;
        for ((one, distance), weight) in sketch.iter().zip(&mut distances).zip(&mut weights) {
            *distance = distance.min(squared_distance(&one.mean, chosen));
            *weight = one.rows as f64 * *distance;
        }
        found.push(chosen.clone());
    }
    found
}

/// A random index with probability proportional to its weight; the first if all weights are 0.
fn pick(weights: &[f64], rng: &mut impl Rng) -> usize {
    let total: f64 = weights.iter().sum();
    let unit = (rng.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0;
    let mut left = unit * total;
    let reached = weights.iter().position(|&weight| {
        left -= weight;
        weight > 0.0 && left < 0.0
    });
    reached.unwrap_or_else(|| weights.iter().rposition(|&weight| weight > 0.0).unwrap_or(0))
}

/// Lloyd's algorithm on the representatives; returns the final inertia.
fn settle(sketch: &[Representative], centroids: &mut [Vec<f64>]) -> f64 {
    let width = centroids.first().map_or(0, Vec::len);
    let mut inertia = f64::INFINITY;
    for _ in 0..=STEPS {
        let mut sums = vec![vec![0.0; width]; centroids.len()];
        let mut weights = vec![0.0; centroids.len()];
        let mut total = 0.0;
        for one in sketch {
            let Some((cluster, distance)) = nearest(centroids, &one.mean) else { continue };
            let weight = one.rows as f64;
            total += weight * distance;
            weights[cluster] += weight;
            for (sum, value) in sums[cluster].iter_mut().zip(&one.mean) {
                *sum += weight * value;
            }
        }
        if total >= inertia {
            return inertia;
        }
        inertia = total;
        for ((centroid, sum), &weight) in centroids.iter_mut().zip(sums).zip(&weights) {
            if weight > 0.0 {
                *centroid = sum.into_iter().map(|value| value / weight).collect();
            }
        }
    }
    inertia
}

/// Moves clusters without rows to the cells that the sketch's centroids represent worst, if that reduces the error.
pub(super) fn begin_again(centroids: &mut [Vec<f64>], empty: &[usize], sketch: &[Representative]) {
    for &cluster in empty {
        let cost = |one: &Representative| nearest(centroids, &one.mean).map_or(0.0, |(_, d)| d * one.rows as f64);
        let costs = sketch.iter().map(|one| (cost(one), one));
        let worst = costs.reduce(|worst, next| if next.0 > worst.0 { next } else { worst });
        if let Some((cost, one)) = worst
            && cost > 0.0
        {
            centroids[cluster] = one.mean.clone();
        }
    }
}
