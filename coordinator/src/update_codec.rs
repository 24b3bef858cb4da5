//! How updates of a task are integers, whatever the task computes.

use std::sync::Arc;

use federation::id::Digest;
use learning::analytics::{SumCodec, SumInspector};
use learning::privacy::{PrivateCodec, PrivateInspector, PrivateMean};
use learning::{Codec, Distortion, MeanUpdate, NoisedSum};
use secure_agg::params::VectorShape;

/// How updates of a task are integers.
#[derive(Clone, Debug)]
pub enum UpdateCodec {
    /// Weighted deltas, their weight and metrics, in the form that the task's compression gives them.
    Plain(Arc<learning::UpdateCodec>),
    /// Clipped deltas on a grid that leaves room for noise.
    Private {
        /// The grid.
        codec: PrivateCodec,
        /// Whether participants add noise to what they send.
        noised: bool,
    },
    /// Counts and sums of an analysis.
    Sums(SumCodec),
}

/// What an attempt at a round has of its own.
pub(crate) struct RoundTerms {
    /// L2 norm that updates were scaled down to.
    pub(crate) clip: f64,
    /// Seed of their rotation.
    pub(crate) rotation: Digest,
    /// Seed of what their codec drew.
    pub(crate) codec: Digest,
}

/// What a released sum says.
pub(crate) struct Decoded {
    /// What steps the model.
    pub(crate) mean: MeanUpdate,
    /// Where the clip adapts: the part of updates that was within it, as the noise lets one see.
    pub(crate) within_clip: Option<f64>,
    /// What compression did to the updates.
    pub(crate) distortion: Option<Distortion>,
}

/// Judges an update as its words arrive.
pub(crate) enum UpdateInspector {
    /// Of a task without privacy.
    Plain(learning::compress::UpdateInspector),
    /// Of one with it.
    Private(PrivateInspector),
    /// Of an analysis.
    Sums(SumInspector),
}

impl UpdateInspector {
    /// Looks at the next words.
    pub(crate) fn push(&mut self, words: &[u32]) {
        match self {
            Self::Plain(inspector) => inspector.push_all(words),
            Self::Private(inspector) => words.iter().for_each(|&word| inspector.push(word)),
            Self::Sums(inspector) => words.iter().for_each(|&word| inspector.push(word)),
        }
    }

    /// Judges what has come.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn finish(self) -> Result<(), String> {
        match self {
            Self::Plain(inspector) => inspector.finish().map_err(|error| error.to_string()),
            Self::Private(inspector) => inspector.finish().map_err(|error| error.to_string()),
            Self::Sums(inspector) => inspector.finish().map_err(|error| error.to_string()),
        }
    }
}

impl UpdateCodec {
    /// Words of an update.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an encoded update is never empty")]
    pub fn len(&self) -> usize {
        match self {
            Self::Plain(codec) => codec.len(),
            Self::Private { codec, .. } => codec.len(),
            Self::Sums(codec) => codec.len(),
        }
    }

    /// The codec of a task without privacy and without compression.
    #[must_use]
    pub fn plain(&self) -> Option<&Codec> {
        match self {
            Self::Plain(codec) => codec.plain(),
            Self::Private { .. } | Self::Sums(_) => None,
        }
    }

    /// The codec of a task whose uploads are expanded before they are added.
    #[must_use]
    pub(crate) fn expanding(&self) -> Option<&Arc<learning::UpdateCodec>> {
        match self {
            Self::Plain(codec) if !codec.is_summable() => Some(codec),
            Self::Plain(_) | Self::Private { .. } | Self::Sums(_) => None,
        }
    }

    /// Words are modulo two to the power of this.
    #[must_use]
    pub fn modulus_bits(&self) -> u8 {
        match self {
            Self::Plain(codec) => codec.modulus_bits(),
            Self::Private { codec, .. } => codec.params().modulus_bits,
            Self::Sums(codec) => codec.modulus_bits(),
        }
    }

    /// What judges an update that nothing hides; none where its own noise does, or where it is not made of words.
    #[must_use]
    pub(crate) fn inspector(&self) -> Option<UpdateInspector> {
        match self {
            Self::Plain(codec) => codec.inspector().map(UpdateInspector::Plain),
            Self::Private { noised: true, .. } => None,
            #[cfg(feature = "deliberate-faults")]
            Self::Private { .. } if crate::faults::present() == Some(crate::faults::Fault::NoClipping) => None,
            Self::Private { codec, .. } => Some(UpdateInspector::Private(codec.inspector())),
            Self::Sums(codec) => Some(UpdateInspector::Sums(codec.inspector())),
        }
    }

    /// Makes a released sum a mean.
    ///
    /// # Errors
    /// What no honest participants could have made, in words.
    pub(crate) fn decode(&self, sum: &NoisedSum, round: &RoundTerms) -> Result<Decoded, String> {
        match self {
            Self::Plain(codec) => {
                let decoded = codec.decode(sum, &round.codec.0).map_err(|error| error.to_string())?;
                Ok(Decoded { mean: decoded.mean, within_clip: None, distortion: decoded.distortion })
            }
            Self::Private { codec, .. } => {
                let made = codec.decode(sum, round.clip, &round.rotation.0).map_err(|error| error.to_string())?;
                let PrivateMean { delta, within_clip } = made;
                let participants = sum.participants();
                let mean = MeanUpdate { delta, weight: 0, participants, metrics: Vec::new() };
                Ok(Decoded { mean, within_clip, distortion: None })
            }
            Self::Sums(_) => Err("the sum of an analysis is no mean".to_owned()),
        }
    }

    pub(crate) fn shape(&self) -> VectorShape {
        let (input_bound, noise_margin) = match self {
            Self::Plain(codec) => (codec.input_bound(), 0),
            Self::Private { codec, .. } => (codec.input_bound(), codec.noise_margin()),
            Self::Sums(codec) => (codec.input_bound(), 0),
        };
        let modulus_bits = self.modulus_bits();
        VectorShape { words: self.len() as u64, modulus_bits, input_bound, noise_margin }
    }
}
