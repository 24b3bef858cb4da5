//! Applies a deliberate fault ([`crate::faults`]) to a release.

use std::sync::Arc;

use federation::round::Round;
use learning::privacy::{DiscreteGaussian, Sigma};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;

use super::noise::Noise;
use crate::faults::{Fault, present};
use recipe::server::PrivateTask;

/// Number of participants whose noise is charged.
pub(super) fn counted(participants: u32, round: &Round) -> u32 {
    if present() == Some(Fault::DropoutsCounted) { round.cohort.max(participants) } else { participants }
}

/// The noise that is added.
pub(super) fn noise(noise: Noise, private: Option<&Arc<PrivateTask>>) -> Noise {
    let half = private.and_then(|private| Sigma::at_least(private.quantizer.codec.sigma().value() / 2.0).ok());
    match (present(), noise, half) {
        (Some(Fault::NoNoise), Noise::Central(..), _) => Noise::None,
        (Some(Fault::HalfNoise), Noise::Central(_, rng), Some(half)) => {
            Noise::Central(DiscreteGaussian::new(half), rng)
        }
        (Some(Fault::ReusedNoise), Noise::Central(noise, _), _) => {
            Noise::Central(noise, Box::new(ChaCha20Rng::from_seed([7; 32])))
        }
        (_, noise, _) => noise,
    }
}
