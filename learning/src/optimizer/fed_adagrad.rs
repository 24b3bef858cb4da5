//! FedAdagrad: accumulates the squares of all rounds' means (Reddi et al. 2021, algorithm 2).

/// The next `v`.
pub(super) fn next(v: f64, square: f64) -> f64 {
    v + square
}
