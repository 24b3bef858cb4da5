//! Codecs: how updates become integers, for every kind of task.

use std::sync::Arc;

use learning::analytics::{Analysis, SumInspector};
use learning::privacy::PrivateInspector;
use learning::{Codec, FixedClip};
use secure_agg::params::VectorShape;

pub(crate) use self::private_quantizer::request;
pub use self::private_quantizer::{PrivateQuantizer, TermsError};

mod private_quantizer;

/// The codec of a task's updates.
#[derive(Clone, Debug)]
pub enum UpdateCodec {
    /// Weighted deltas with their weight and metrics, compressed with the task's codec.
    Plain(Arc<learning::WeightedCodec>),
    /// Clipped deltas, quantized with room for noise.
    Private(Arc<PrivateQuantizer>),
    /// Counts and sums of an analysis.
    Sums(Arc<Analysis>),
}

/// Checks an update as its words arrive.
pub enum UpdateInspector {
    /// For a task without privacy mechanism.
    Plain(learning::compress::WeightedInspector),
    /// For a private task.
    Private(PrivateInspector),
    /// For an analysis.
    Sums(SumInspector),
}

impl UpdateInspector {
    /// Checks the next words.
    pub fn push(&mut self, words: &[u32]) {
        match self {
            Self::Plain(inspector) => inspector.push_all(words),
            Self::Private(inspector) => words.iter().for_each(|&word| inspector.push(word)),
            Self::Sums(inspector) => words.iter().for_each(|&word| inspector.push(word)),
        }
    }

    /// Completes the check.
    ///
    /// # Errors
    /// The defect.
    pub fn finish(self) -> Result<(), String> {
        match self {
            Self::Plain(inspector) => inspector.finish().map_err(|error| error.to_string()),
            Self::Private(inspector) => inspector.finish().map_err(|error| error.to_string()),
            Self::Sums(inspector) => inspector.finish().map_err(|error| error.to_string()),
        }
    }
}

impl UpdateCodec {
    /// Number of words of an update.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an encoded update is never empty")]
    pub fn len(&self) -> usize {
        match self {
            Self::Plain(codec) => codec.len(),
            Self::Private(quantizer) => quantizer.codec.len(),
            Self::Sums(analysis) => analysis.codec().len(),
        }
    }

    /// Number of words, the modulus 2^b, the largest magnitude of a word, and the headroom for noise in the sum.
    #[must_use]
    pub fn shape(&self) -> VectorShape {
        let (modulus_bits, input_bound, noise_margin) = match self {
            Self::Plain(codec) => (codec.modulus_bits(), codec.input_bound(), 0),
            Self::Private(quantizer) => {
                let codec = &quantizer.codec;
                (codec.params().modulus_bits, codec.input_bound(), codec.noise_margin())
            }
            Self::Sums(analysis) => (analysis.codec().modulus_bits(), analysis.codec().input_bound(), 0),
        };
        VectorShape { words: self.len() as u64, modulus_bits, input_bound, noise_margin }
    }

    /// The codec of a task without privacy and without compression.
    #[must_use]
    pub fn plain(&self) -> Option<&Codec> {
        match self {
            Self::Plain(codec) => codec.plain(),
            Self::Private(_) | Self::Sums(_) => None,
        }
    }

    /// The codec of a task with uploads that are expanded before the addition.
    #[must_use]
    pub fn expanding(&self) -> Option<&Arc<learning::WeightedCodec>> {
        match self {
            Self::Plain(codec) if !codec.is_summable() => Some(codec),
            Self::Plain(_) | Self::Private(_) | Self::Sums(_) => None,
        }
    }

    /// The L2 clipping norm of updates, if any; `clip` is the round's norm in a private task.
    #[must_use]
    pub fn norm_bound(&self, clip: Option<f64>) -> Option<FixedClip> {
        let bound = match self {
            Self::Plain(codec) => codec.params().clip_norm,
            #[expect(clippy::cast_possible_truncation, reason = "what it rounds up is clipped again")]
            Self::Private(_) => clip.map(|clip| clip as f32),
            Self::Sums(_) => None,
        };
        bound.and_then(|bound| FixedClip::new(bound).ok())
    }

    /// Checks unmasked updates; `None` if the update carries its own noise, or does not consist of words.
    #[must_use]
    pub fn inspector(&self) -> Option<UpdateInspector> {
        match self {
            Self::Plain(codec) => codec.inspector().map(UpdateInspector::Plain),
            Self::Private(quantizer) => match quantizer.shares {
                Some(_) => None,
                None => Some(UpdateInspector::Private(quantizer.codec.inspector())),
            },
            Self::Sums(analysis) => Some(UpdateInspector::Sums(analysis.codec().inspector())),
        }
    }
}
