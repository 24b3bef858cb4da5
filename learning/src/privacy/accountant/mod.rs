//! The cost of releases: Rényi curves, privacy loss distributions, zCDP, and their conversion to epsilon.
//!
//! Every figure is an upper bound: computations round towards more epsilon, and diverging bounds are left out. Pure functions of their
//! arguments, with the same `exp` and `erfc` on every platform.

pub mod closeness;
mod curve;
pub(crate) mod gaussian;
mod gaussians;
pub mod integer_noise;
pub mod pld;
pub mod sampled;
mod special;
pub mod zcdp;

pub use closeness::{CloseCurve, Closeness, Textbook};
pub use curve::{ORDERS, RdpCurve};
pub use gaussians::Gaussians;
pub use integer_noise::{SumMechanism, SumNoise, inflated_sensitivity, tree_levels};
pub use pld::{Composed, LossPair, PldError, compose};
pub use sampled::{
    gaussian_without_replacement, poisson_gaussian, poisson_gaussian_at, poisson_sampled, without_replacement,
};
