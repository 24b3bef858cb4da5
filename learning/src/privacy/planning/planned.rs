//! The result of planning, or the reason for its failure.

use serde::Serialize;

use crate::privacy::PrivateCodecError;
use crate::privacy::mechanisms::noise::NoiseError;
use crate::privacy::release::{Epsilons, Release};

/// Noise for a task, with the privacy and the error that follow from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Noise over L2 sensitivity.
    pub noise_multiplier: f64,
    /// Epsilons of the mechanism as it will be released.
    pub epsilon: Epsilons,
    /// Figures of two accountants for the textbook Poisson-subsampled Gaussian with this multiplier, for comparison with the actual
    /// release.
    pub accountant: Textbook,
    /// Length of the noise on the mean update over the clipping norm.
    pub noise_to_signal: f64,
    /// Length of the noise on the sum of the means so far over the clipping norm, as root mean square over the rounds:
    /// the noise that model versions carry. Correlated noise keeps it low.
    pub noise_on_sums: f64,
    /// The noise on the integers.
    pub release: Release,
    /// Messages for the operator.
    pub warnings: Vec<String>,
}

/// Two figures for the same release.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Textbook {
    /// Epsilon by Rényi divergences.
    pub rdp: f64,
    /// By the privacy loss distribution; absent if epsilon is in the hundreds.
    pub pld: Option<f64>,
}

/// Reasons for a missing plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A parameter is out of range.
    #[error("{name} must be {range}, not {value}")]
    Range { name: &'static str, range: &'static str, value: f64 },
    /// The mechanism limits participations, and the population is too small for the rounds.
    #[error(transparent)]
    Turns(#[from] task_spec::TooFewTurns),
    /// The mechanism is `none`.
    #[error("mechanism \"none\" adds no noise: there is nothing to plan, and no epsilon")]
    NoMechanism,
    /// Even the largest available multiplier is insufficient.
    #[error("no noise multiplier up to {most} keeps epsilon at {wanted}: it would still be {best:.4}")]
    Unreachable {
        wanted: f64,
        /// Largest available multiplier.
        most: f64,
        /// The epsilon it gives.
        best: f64,
    },
    /// The modulus lacks room.
    #[error(transparent)]
    Codec(#[from] PrivateCodecError),
    /// The shares are invalid.
    #[error(transparent)]
    Noise(#[from] NoiseError),
}
