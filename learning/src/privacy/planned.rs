//! What a plan says, and why there is none.

use serde::Serialize;

use super::PrivateCodecError;
use super::noise::NoiseError;
use super::release::{Epsilons, Release};

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Noise over L2 sensitivity.
    pub noise_multiplier: f64,
    /// Of the mechanism as it will be released.
    pub epsilon: Epsilons,
    /// What the two accountants say of the textbook Poisson-subsampled Gaussian with that multiplier; not what is released.
    pub accountant: Textbook,
    /// Length of the noise on the mean update over the clipping norm.
    pub noise_to_signal: f64,
    /// Length of the noise on the sum of the means so far over the clipping norm, as the root of its mean square over the
    /// rounds: what model versions carry. Correlated noise is for keeping this low.
    pub noise_on_sums: f64,
    /// What makes the noise, on the integers.
    pub release: Release,
    /// What the operator should think about.
    pub warnings: Vec<String>,
}

/// Two accounts of the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Textbook {
    /// By Rényi divergence.
    pub rdp: f64,
    /// By the loss distribution; absent where epsilon is in the hundreds.
    pub pld: Option<f64>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Something out of its range.
    #[error("{name} must be {range}, not {value}")]
    Range {
        /// Which.
        name: &'static str,
        /// What it must be.
        range: &'static str,
        /// What it is.
        value: f64,
    },
    /// There is nothing to plan.
    #[error("mechanism \"none\" adds no noise: there is nothing to plan, and no epsilon")]
    NoMechanism,
    /// No multiplier that can be drawn does.
    #[error("no noise multiplier up to {most} keeps epsilon at {wanted}: it would still be {best:.4}")]
    Unreachable {
        /// What was asked for.
        wanted: f64,
        /// Largest multiplier.
        most: f64,
        /// What it gives.
        best: f64,
    },
    /// The grid has no room.
    #[error(transparent)]
    Codec(#[from] PrivateCodecError),
    /// Shares that cannot be.
    #[error(transparent)]
    Noise(#[from] NoiseError),
}
