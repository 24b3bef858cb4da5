//! What releases cost: Rényi curves, privacy loss distributions, zCDP, and how each becomes an epsilon.
//!
//! Every figure is an upper bound: where a computation rounds, it rounds towards more epsilon, and where a bound does not
//! converge it is left out rather than guessed. Pure functions of their arguments, computed with one `exp` and one `erfc`
//! on every platform.

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
