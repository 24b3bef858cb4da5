//! Updates in fewer bytes: a codec per task, each with its encoder and its decoder in one file.
//!
//! [`UpdateCodec`] is what both sides call, whatever the task has chosen. *Summable* codecs yield words modulo 2^b whose sum
//! decodes to the mean, so they may be masked: [`rotated`] (few bits per coordinate after a randomised rotation),
//! [`random_k`] (coordinates drawn by a shared seed) and [`low_rank`] (matrices seen through a shared random basis). The
//! others ([`top_k`], [`int8`]) depend on what one update holds and need it in the clear: the coordinator expands each
//! upload to words of the task's ordinary grid before it adds them, so their sums are exact integers as well and no order of
//! arrival changes a bit.
//!
//! What a codec drops may stay at home and come along next time ([`Residual`], error feedback). A codec must not depend on
//! anything but its arguments: seeds are public and the same for a whole round, rounding draws from the caller's generator.

mod error;
mod input;
pub mod int8;
mod lanes;
pub mod low_rank;
pub mod random_k;
mod residual;
pub mod rotated;
mod sample;
mod sparse_index;
mod summed;
mod tail;
pub mod top_k;
mod upload;

pub use error::{CodecError, UploadError};
pub use input::{Decoded, Distortion};
pub use residual::{BadResidual, Residual};
pub use summed::LanesInspector;

use rand::Rng;
use task_spec::Compression;

use crate::parameters::{Layout, WrongLength};
use crate::privacy::NoisedSum;
use crate::quantize::{
    Codec, DecodeError, EncodeError, ImplausibleUpdate, Inspector, QuantizationParams, QuantizedUpdate,
};
use crate::update::Update;
use input::Input;
use summed::Summed;
use upload::Compact;

/// An encoded update with what stays at home.
#[derive(Debug)]
pub struct Encoded {
    /// What leaves the device.
    pub upload: Upload,
    /// To be kept until the next round of the task, where the codec has error feedback.
    pub residual: Option<Residual>,
}

/// What leaves the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upload {
    /// Words modulo 2^b, to be masked and packed.
    Words(QuantizedUpdate),
    /// Bytes that the coordinator expands.
    Bytes(CompactUpdate),
}

/// One update in a form that has to be expanded before it can be added.
#[derive(Clone, PartialEq, Eq)]
pub struct CompactUpdate(pub Vec<u8>);

/// Sizes only: an update in a log would be a leak.
impl std::fmt::Debug for CompactUpdate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompactUpdate").field("bytes", &self.0.len()).finish_non_exhaustive()
    }
}

/// How updates of a task travel: made of what both sides agree on, proven to leave headroom.
#[derive(Clone, Debug)]
pub struct UpdateCodec {
    params: QuantizationParams,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Plain(Codec),
    Summed(Box<Summed>),
    Compact(Box<Compact>),
}

impl UpdateCodec {
    /// Checks that the codec fits the model and that no sum of a full cohort wraps. `None` is the plain [`Codec`]. Summable
    /// codecs choose their modulus themselves; the one of `params` is that of the other two.
    ///
    /// # Errors
    /// Any [`CodecError`].
    pub fn new(spec: Option<&Compression>, layout: &Layout, params: QuantizationParams) -> Result<Self, CodecError> {
        if params.parameters != layout.len() {
            return Err(WrongLength { expected: layout.len(), got: params.parameters }.into());
        }
        let form = match spec {
            None => Form::Plain(Codec::new(params)?),
            Some(spec) if spec.is_summable() => Form::Summed(Box::new(Summed::new(spec, layout, &params)?)),
            Some(spec) => Form::Compact(Box::new(Compact::new(spec, layout, params)?)),
        };
        Ok(Self { params, form })
    }

    /// What it was made of.
    #[must_use]
    pub fn params(&self) -> &QuantizationParams {
        &self.params
    }

    /// The plain codec, where there is no compression.
    #[must_use]
    pub fn plain(&self) -> Option<&Codec> {
        match &self.form {
            Form::Plain(codec) => Some(codec),
            Form::Summed(_) | Form::Compact(_) => None,
        }
    }

    /// Whether encoded updates can be added, and so masked, without being looked at.
    #[must_use]
    pub fn is_summable(&self) -> bool {
        !matches!(self.form, Form::Compact(_))
    }

    /// Words of a sum; of an upload too where the codec is summable.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an encoded update is never empty")]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Plain(codec) => codec.len(),
            Form::Summed(summed) => summed.len(),
            Form::Compact(compact) => compact.dense().len(),
        }
    }

    /// `b`: sums are modulo 2^b; 16 to 32.
    #[must_use]
    pub fn modulus_bits(&self) -> u8 {
        match &self.form {
            Form::Summed(summed) => summed.modulus_bits(),
            Form::Plain(_) | Form::Compact(_) => self.params.modulus_bits,
        }
    }

    /// Largest magnitude that a word of one update can have, read as a signed number.
    #[must_use]
    pub fn input_bound(&self) -> u64 {
        match &self.form {
            Form::Plain(codec) => codec.input_bound(),
            Form::Summed(summed) => summed.input_bound(),
            Form::Compact(compact) => compact.dense().input_bound(),
        }
    }

    /// Bytes of one upload: the same for every update.
    #[must_use]
    pub fn upload_bytes(&self) -> usize {
        match &self.form {
            Form::Compact(compact) => compact.bytes(),
            // Eight words are whole bytes.
            Form::Plain(_) | Form::Summed(_) => {
                let (words, bits) = (self.len(), usize::from(self.modulus_bits()));
                words / 8 * bits + (words % 8 * bits).div_ceil(8)
            }
        }
    }

    /// How many times smaller an upload is than the update in `f32`.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        4.0 * self.params.parameters as f64 / self.upload_bytes() as f64
    }

    /// Whether something is to be kept from round to round.
    #[must_use]
    pub fn keeps_residual(&self) -> bool {
        match &self.form {
            Form::Plain(_) => false,
            Form::Summed(summed) => summed.keeps_residual(),
            Form::Compact(compact) => compact.keeps_residual(),
        }
    }

    /// Clips, adds what earlier rounds left, compresses, weighs and rounds. `seed` is public and the whole round's; `rng` is
    /// the participant's own. What is left over comes back as the new residual, and nothing is left out: what the coordinator
    /// decodes of this update alone and the residual make up the clipped update and the old residual.
    ///
    /// The norm bound holds for what training changed; what error feedback carries over may add to it.
    ///
    /// # Errors
    /// Any [`EncodeError`]: a local matter of the participant, nothing may be sent.
    pub fn encode(
        &self,
        update: &Update,
        residual: Option<&Residual>,
        seed: &[u8; 32],
        rng: &mut impl Rng,
    ) -> Result<Encoded, EncodeError> {
        match &self.form {
            Form::Plain(codec) => {
                let upload = Upload::Words(codec.encode(update, rng)?);
                Ok(Encoded { upload, residual: None })
            }
            Form::Summed(summed) => {
                let input = Input::new(update, residual.filter(|_| summed.keeps_residual()), &self.params)?;
                let (words, sent) = summed.encode(&input, seed, rng);
                let residual = summed.keeps_residual().then(|| Residual::between(&input.values, &sent));
                Ok(Encoded { upload: Upload::Words(words), residual })
            }
            Form::Compact(compact) => {
                let input = Input::new(update, residual.filter(|_| compact.keeps_residual()), &self.params)?;
                let (bytes, sent) = compact.encode(&input, rng);
                let residual = compact.keeps_residual().then(|| Residual::between(&input.values, &sent));
                Ok(Encoded { upload: Upload::Bytes(CompactUpdate(bytes)), residual })
            }
        }
    }

    /// The words to add for an upload of a codec that is not summable: a pure function, the same on every replica.
    ///
    /// # Errors
    /// Any [`UploadError`]: no encoder yields these bytes, or this codec's uploads are words already. Lengths are compared
    /// before anything is allocated.
    pub fn expand(&self, bytes: &[u8]) -> Result<Vec<u32>, UploadError> {
        match &self.form {
            Form::Compact(compact) => compact.expand(bytes),
            Form::Plain(_) | Form::Summed(_) => Err(UploadError::Summable),
        }
    }

    /// Whether [`expand`](Self::expand) takes these bytes, without making words of them.
    ///
    /// # Errors
    /// Those of [`expand`](Self::expand).
    pub fn check(&self, bytes: &[u8]) -> Result<(), UploadError> {
        match &self.form {
            Form::Compact(compact) => compact.check(bytes),
            Form::Plain(_) | Form::Summed(_) => Err(UploadError::Summable),
        }
    }

    /// The weighted mean of the updates in a sum. `seed` is the one they were encoded with.
    ///
    /// # Errors
    /// Any [`DecodeError`]; a sum that these participants cannot have produced is refused rather than published.
    pub fn decode(&self, sum: &NoisedSum, seed: &[u8; 32]) -> Result<Decoded, DecodeError> {
        match &self.form {
            Form::Plain(codec) => Ok(Decoded { mean: codec.decode(sum)?, distortion: None }),
            Form::Summed(summed) => summed.decode(sum, seed),
            Form::Compact(compact) => compact.decode(sum),
        }
    }

    /// Judges one update in the clear, word by word; none where uploads are bytes, which [`check`](Self::check) judges.
    #[must_use]
    pub fn inspector(&self) -> Option<UpdateInspector> {
        match &self.form {
            Form::Plain(codec) => Some(UpdateInspector::Plain(codec.inspector())),
            Form::Summed(summed) => Some(UpdateInspector::Lanes(summed.inspector())),
            Form::Compact(_) => None,
        }
    }
}

/// Takes an update in the clear word by word, before it is added to others.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum UpdateInspector {
    /// Of the plain codec.
    Plain(Inspector),
    /// Of a summable one.
    Lanes(LanesInspector),
}

impl UpdateInspector {
    /// Looks at the next word, which must be below 2^b.
    pub fn push(&mut self, word: u32) {
        match self {
            Self::Plain(inspector) => inspector.push(word),
            Self::Lanes(inspector) => inspector.push(word),
        }
    }

    /// Looks at the next words, like [`Self::push`] at each.
    pub fn push_all(&mut self, words: &[u32]) {
        match self {
            Self::Plain(inspector) => inspector.push_all(words),
            Self::Lanes(inspector) => words.iter().for_each(|&word| inspector.push(word)),
        }
    }

    /// Judges what has come.
    ///
    /// # Errors
    /// Any [`ImplausibleUpdate`]: added to others, the update could spoil or wrap their sum.
    pub fn finish(self) -> Result<(), ImplausibleUpdate> {
        match self {
            Self::Plain(inspector) => inspector.finish(),
            Self::Lanes(inspector) => inspector.finish(),
        }
    }
}

#[cfg(test)]
mod tests;
