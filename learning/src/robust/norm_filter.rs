//! Drops updates much longer than the others. It tolerates only attackers that scale up their updates.

use super::Gram;
use super::counted::middle;

/// Equal weights for the updates whose norm is at most `factor` times the median norm.
pub(super) fn weights(gram: &Gram, factor: f64) -> Vec<f64> {
    let norms: Vec<_> = (0..gram.len()).map(|i| gram.norm(i)).collect();
    let most = factor.max(1.0) * middle(&norms);
    let kept = norms.iter().filter(|&&norm| norm <= most).count();
    let share = 1.0 / f64::from(super::count(kept));
    norms.iter().map(|&norm| if norm <= most { share } else { 0.0 }).collect()
}
