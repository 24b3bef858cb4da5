//! FedYogi: as FedAdam, but the change of `v` does not grow with `v`, so large squares decay slowly (Reddi et al. 2021,
//! algorithm 2; Zaheer et al. 2018).

use std::cmp::Ordering;

/// The next `v`.
pub(super) fn next(beta2: f64, v: f64, square: f64) -> f64 {
    let change = (1.0 - beta2) * square;
    match v.total_cmp(&square) {
        Ordering::Less => v + change,
        Ordering::Equal => v,
        Ordering::Greater => v - change,
    }
}
