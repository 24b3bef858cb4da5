//! What stands between an exact sum and the world.

pub mod sum;

pub use sum::{ExactSum, NoisedSum, SumError};
