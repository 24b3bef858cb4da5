//! Deliberate faults that audits must detect. Only with the feature `deliberate-faults`, for tests only.

use learning::Update;
use learning::clip::norm;
use learning::privacy::{NoiseLaw, NoiseSampler, PrivateEncodeError, Sigma, Variance};
use rand_chacha::ChaCha20Rng;

use crate::codec::PrivateQuantizer;

/// A participant's deliberate fault in private rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Sends its update unclipped.
    NoClipping,
    /// Omits the share of noise.
    NoNoise,
    /// Adds noise of half the standard deviation.
    HalfNoise,
}

impl Fault {
    /// The words to send instead of `pipeline`'s.
    pub(crate) fn words(
        self,
        update: &Update,
        quantizer: &PrivateQuantizer,
        clip: f64,
        rotation_seed: &[u8; 32],
        rng: &mut ChaCha20Rng,
    ) -> Result<Vec<u32>, PrivateEncodeError> {
        let bits = quantizer.codec.params().modulus_bits;
        let mut words = match self {
            Self::NoClipping => unclipped(update, quantizer, clip, rotation_seed, rng)?,
            Self::NoNoise | Self::HalfNoise => quantizer.codec.encode(update, clip, rotation_seed, rng)?.words,
        };
        let own = quantizer.shares.map(|shares| shares.share);
        let law = match self {
            Self::NoClipping => own,
            Self::NoNoise => None,
            Self::HalfNoise => own.map(halved),
        };
        if let Some(law) = law {
            NoiseSampler::new(law).add_to(&mut words, bits, rng);
        }
        Ok(words)
    }
}

/// A sufficiently short fraction of the update, multiplied back after rounding.
fn unclipped(
    update: &Update,
    quantizer: &PrivateQuantizer,
    clip: f64,
    rotation_seed: &[u8; 32],
    rng: &mut ChaCha20Rng,
) -> Result<Vec<u32>, PrivateEncodeError> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a norm over the clip; saturating")]
    let times = (norm(&update.delta) / clip).ceil().max(1.0) as u32;
    #[expect(clippy::cast_possible_truncation, reason = "back to what it was")]
    let delta = update.delta.iter().map(|value| (f64::from(*value) / f64::from(times)) as f32).collect();
    let part = Update { delta, ..update.clone() };
    let mut words = quantizer.codec.encode(&part, clip, rotation_seed, rng)?.words;
    let mask = u32::MAX >> (32 - u32::from(quantizer.codec.params().modulus_bits));
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
