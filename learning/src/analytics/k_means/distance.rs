//! Distances between rows and points, and groups of rows represented by one point.

use serde::{Deserialize, Serialize};

/// A group of rows and its mean.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Representative {
    pub(super) rows: u64,
    pub(super) mean: Vec<f64>,
}

/// Index of the nearest centroid and the squared distance; the first of several.
pub(super) fn nearest(centroids: &[Vec<f64>], row: &[f64]) -> Option<(usize, f64)> {
    let distances = centroids.iter().map(|centroid| squared_distance(centroid, row));
    distances.enumerate().reduce(|best, next| if next.1 < best.1 { next } else { best })
}

pub(super) fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}
