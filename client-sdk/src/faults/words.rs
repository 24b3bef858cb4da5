//! The words that a faulty participant sends.

use learning::privacy::{NoiseLaw, NoiseSampler, PrivateEncodeError, Sigma, Variance};
use learning::{Update, clip};
use rand_chacha::ChaCha20Rng;

use super::Fault;
use crate::privacy::PrivateRound;

impl Fault {
    /// The words to send instead of `pipeline`'s.
    pub(crate) fn words(
        self,
        update: &Update,
        round: &PrivateRound,
        rng: &mut ChaCha20Rng,
    ) -> Result<Vec<u32>, PrivateEncodeError> {
        let bits = round.codec.params().modulus_bits;
        let mut words = match self {
            Self::NoClipping => unclipped(update, round, rng)?,
            Self::NoNoise | Self::HalfNoise => round.codec.encode(update, round.clip, &round.rotation_seed, rng)?.words,
        };
        let law = match self {
            Self::NoClipping => round.noise,
            Self::NoNoise => None,
            Self::HalfNoise => round.noise.map(halved),
        };
        if let Some(law) = law {
            NoiseSampler::new(law).add_to(&mut words, bits, rng);
        }
        Ok(words)
    }
}

/// A fraction of the update that is short enough, multiplied back after rounding.
fn unclipped(update: &Update, round: &PrivateRound, rng: &mut ChaCha20Rng) -> Result<Vec<u32>, PrivateEncodeError> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a norm over the clip; saturating")]
    let times = (clip::norm(&update.delta) / round.clip).ceil().max(1.0) as u32;
    #[expect(clippy::cast_possible_truncation, reason = "back to what it was")]
    let delta = update.delta.iter().map(|value| (f64::from(*value) / f64::from(times)) as f32).collect();
    let part = Update { delta, ..update.clone() };
    let mut words = round.codec.encode(&part, round.clip, &round.rotation_seed, rng)?.words;
    let mask = u32::MAX >> (32 - u32::from(round.codec.params().modulus_bits));
    words.iter_mut().for_each(|word| *word = word.wrapping_mul(times) & mask);
    Ok(words)
}

fn halved(law: NoiseLaw) -> NoiseLaw {
    let half = match law {
        NoiseLaw::DiscreteGaussian(sigma) => Sigma::at_least(sigma.value() / 2.0).map(NoiseLaw::DiscreteGaussian).ok(),
        NoiseLaw::Skellam(variance) => Variance::at_least(variance.value() / 4.0).map(NoiseLaw::Skellam).ok(),
    };
    half.unwrap_or(law)
}
