//! The distribution of the sites' own figures.

use super::bins::{BinnedQuantile, quantiles};

/// Number of bins of a site's figure.
pub(super) const SITE_BINS: usize = 100;

/// Quartiles over sites, from the number of sites in each bin.
pub(super) fn quartiles(sites: &[u64], place: impl Fn(f64) -> f64) -> Vec<BinnedQuantile> {
    quantiles(sites, &[0.25, 0.5, 0.75], place)
}
