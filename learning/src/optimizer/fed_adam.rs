//! FedAdam: an exponential moving average of the squared means (Reddi et al. 2021, algorithm 2).

/// The next `v`.
pub(super) fn next(beta2: f64, v: f64, square: f64) -> f64 {
    beta2 * v + (1.0 - beta2) * square
}
