//! Bin edges of a column: quantiles over all rows, from counts alone.
//!
//! The first round counts rows in equal parts of the declared range, each later round in the parts that the one before
//! suggested, so crowded parts of the range are refined. A part with a large share of the rows, which may all have the
//! same value, counts as at most [`MOST_BINS`] bins' worth, so that the other values get thresholds too.

use crate::analytics::table::Range;

const MOST_BINS: f64 = 2.0;

/// Edges that divide the range into equal parts.
pub(super) fn equal_parts(range: Range, bins: u32) -> Vec<f64> {
    let edge = |i: u32| range.low + f64::from(i) / f64::from(bins) * range.width();
    ascending((1..bins).map(edge))
}

/// The bin of a value: the number of edges that it reaches.
pub(super) fn bin_of(edges: &[f64], value: f64) -> usize {
    edges.partition_point(|&edge| edge <= value)
}

/// New edges for about the same number of rows in each bin, given the counts between the old edges.
pub(super) fn balance(range: Range, edges: &[f64], counts: &[i64], bins: u32) -> Vec<f64> {
    let rows = counts.iter().map(|&count| count as f64).sum::<f64>();
    if rows <= 0.0 {
        return edges.to_vec();
    }
    let most = MOST_BINS * rows / f64::from(bins);
    let masses = counts.iter().map(|&count| (count as f64).min(most));
    let total: f64 = masses.clone().sum();
    let ends = |bin: usize| {
        let low = if bin == 0 { range.low } else { edges[bin - 1] };
        (low, edges.get(bin).copied().unwrap_or(range.high))
    };
    let mut found = Vec::with_capacity(edges.len());
    let mut before = 0.0;
    let mut next = 1;
    for (bin, mass) in masses.take(edges.len() + 1).enumerate() {
        let (low, high) = ends(bin);
        while next < bins {
            let wanted = f64::from(next) / f64::from(bins) * total;
            if wanted > before + mass || mass <= 0.0 {
                break;
            }
            found.push(low + (wanted - before) / mass * (high - low));
            next += 1;
        }
        before += mass;
    }
    ascending(found.into_iter())
}

/// Drops edges that are not above the preceding one.
fn ascending(edges: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut kept: Vec<f64> = Vec::new();
    for edge in edges {
        if kept.last().is_none_or(|&last| edge > last) {
            kept.push(edge);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(edges: &[f64], values: impl Iterator<Item = f64>) -> Vec<i64> {
        let mut counts = vec![0; edges.len() + 1];
        values.for_each(|value| counts[bin_of(edges, value)] += 1);
        counts
    }

    fn refine(range: Range, bins: u32, rounds: u32, values: &[f64]) -> Vec<f64> {
        let mut edges = equal_parts(range, bins);
        for _ in 0..rounds {
            let counts = counts(&edges, values.iter().copied());
            edges = balance(range, &edges, &counts, bins);
        }
        edges
    }

    #[test]
    fn bins_follow_the_rows_into_a_corner() {
        let range = Range { low: 0.0, high: 1000.0 };
        let values: Vec<f64> = (0..1000).map(|i| f64::from(i) / 250.0).collect();
        let edges = refine(range, 16, 3, &values);
        let counts = counts(&edges, values.iter().copied());
        assert!(counts.iter().all(|&count| count < 130), "{counts:?} {edges:?}");
    }

    #[test]
    fn one_frequent_value_leaves_bins_for_the_others() {
        let range = Range { low: 0.0, high: 255.0 };
        let values: Vec<f64> = (0..800).map(|_| 0.0).chain((0..200).map(|i| 55.0 + f64::from(i))).collect();
        let edges = refine(range, 16, 2, &values);
        assert!(edges.iter().filter(|&&edge| edge > 50.0).count() >= 8, "{edges:?}");
        assert!(edges.is_sorted_by(|a, b| a < b) && edges.len() <= 15);
    }

    #[test]
    fn without_rows_the_edges_stay() {
        let range = Range { low: 0.0, high: 4.0 };
        let edges = equal_parts(range, 4);
        assert_eq!(edges, [1.0, 2.0, 3.0]);
        assert_eq!(balance(range, &edges, &[0; 4], 4), edges);
        assert_eq!((bin_of(&edges, -9.0), bin_of(&edges, 1.0), bin_of(&edges, 99.0)), (0, 1, 3));
    }
}
