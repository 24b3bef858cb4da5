//! What stands between an exact sum and the world.

pub mod accountant;
pub mod discrete_gaussian;
mod sample;
pub mod skellam;
pub mod sum;

pub use discrete_gaussian::{DiscreteGaussian, Sigma};
pub use sample::bernoulli::{BadRate, SamplingRate};
pub use skellam::{Skellam, Variance};
pub use sum::{ExactSum, NoisedSum, SumError};
