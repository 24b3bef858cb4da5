//! Quantiles and areas from counts in bins.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Number of bins of a site's own figure.
pub(super) const SITE_BINS: usize = 100;
/// Number of groups of a calibration.
const GROUPS: usize = 10;

/// A quantile known to lie between two edges of bins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BinnedQuantile {
    /// Above 0 and below 1: at least this share is at most the quantile.
    pub of: f64,
    pub low: f64,
    pub high: f64,
}

impl BinnedQuantile {
    pub(super) fn is_sound(&self) -> bool {
        [self.of, self.low, self.high].iter().all(|value| value.is_finite())
    }
}

/// The groups of bins of a calibration, equally wide except the last; at most 10.
pub(super) fn groups(bins: usize) -> impl Iterator<Item = Range<usize>> {
    let each = bins.div_ceil(GROUPS);
    (0..bins).step_by(each).map(move |start| start..bins.min(start + each))
}

/// The bin of a value from 0 to 1.
pub(super) fn bin(value: f64, bins: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let bin = (value.clamp(0.0, 1.0) * bins as f64) as usize;
    bin.min(bins - 1)
}

/// The quantiles of counts in equal bins over 0 to 1; none without counts. `place` maps an edge to the published unit.
pub(super) fn quantiles(cells: &[u64], of: &[f64], place: impl Fn(f64) -> f64) -> Vec<BinnedQuantile> {
    let total: u64 = cells.iter().sum();
    if total == 0 {
        return Vec::new();
    }
    let edge = |at: usize| place(at as f64 / cells.len() as f64);
    let quantile = |&of: &f64| {
        // The least rank whose share reaches the quantile; counts are far below 2^53.
        let rank = (of * total as f64).ceil().max(1.0);
        let mut seen = 0.0;
        let found = cells.iter().position(|&count| {
            seen += count as f64;
            seen >= rank
        });
        let at = found.unwrap_or(cells.len() - 1);
        BinnedQuantile { of, low: edge(at), high: edge(at + 1) }
    };
    of.iter().map(quantile).collect()
}

/// The area under the receiver operating characteristic from counts by bin of the score, and the most that the bins can be
/// off: pairs within a bin count as half. `None` without a pair.
pub(super) fn area(own: &[u64], others: &[u64]) -> Option<(f64, f64)> {
    let (mut below, mut ordered, mut tied) = (0_u64, 0.0, 0.0);
    for (&own, &others) in own.iter().zip(others) {
        ordered += own as f64 * below as f64;
        tied += own as f64 * others as f64;
        below += others;
    }
    let pairs = own.iter().sum::<u64>() as f64 * below as f64;
    (pairs > 0.0).then(|| ((ordered + tied / 2.0) / pairs, tied / 2.0 / pairs))
}
