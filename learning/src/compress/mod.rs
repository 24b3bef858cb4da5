//! Compression of updates: one codec per task, with encoder and decoder in one file each (`codecs`).
//!
//! Both sides use [`WeightedCodec`] for every codec. *Summable* codecs produce words modulo 2^b whose sum decodes to the mean, so they can
//! be masked. The others depend on the content of the update, so it must be sent unmasked: the coordinator expands each upload to words of the
//! task's ordinary grid before it adds them, so these sums are exact integers too and independent of the order of arrival.
//!
//! With error feedback, the dropped part stays on the device and is added to the next update ([`Residual`]). A codec depends on its
//! arguments only: seeds are public and shared by the whole round, and rounding draws from the caller's generator.

mod codecs;
mod error;
mod input;
mod lanes;
mod residual;
mod sample;
mod sparse_index;
mod summed;
mod tail;
mod upload;

pub use error::{CodecError, UploadError};
pub use input::{Decoded, Distortion};
pub use residual::{BadResidual, Residual};
pub use summed::LanesInspector;

use rand::Rng;
use task_spec::Compression;

use crate::parameters::{Layout, WrongLength};
use crate::privacy::{NoisedSum, SumHeader};
use crate::quantize::{
    Codec, DecodeError, EncodeError, ImplausibleUpdate, Inspector, QuantizationParams, QuantizedUpdate, SumTail,
};
use crate::update::Update;
use codecs::Fitted;
use input::Input;
use summed::Summed;
use upload::Compact;

/// An encoded update and the residual that stays on the device.
#[derive(Debug)]
pub struct Encoded {
    pub upload: Upload,
    /// Stored until the task's next round; `None` without error feedback.
    pub residual: Option<Residual>,
}

/// The part sent by the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upload {
    /// Words modulo 2^b, to be masked and packed.
    Words(QuantizedUpdate),
    /// Bytes that the coordinator expands.
    Bytes(CompactUpdate),
}

/// A compressed update to be expanded before the addition.
#[derive(Clone, PartialEq, Eq)]
pub struct CompactUpdate(pub Vec<u8>);

/// Shows the length only: an update in a log would be a leak.
impl std::fmt::Debug for CompactUpdate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompactUpdate").field("bytes", &self.0.len()).finish_non_exhaustive()
    }
}

/// A task's update codec, with proven headroom.
#[derive(Clone, Debug)]
pub struct WeightedCodec {
    params: QuantizationParams,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Plain(Codec),
    Summed(Box<Summed>),
    Compact(Box<Compact>),
}

impl WeightedCodec {
    /// Checks that the codec fits the model and that the sum of a full cohort cannot wrap. `None` is the plain
    /// [`Codec`]. Summable codecs choose their own modulus; the others use that of `params`.
    ///
    /// # Errors
    /// Any [`CodecError`].
    pub fn new(spec: Option<&Compression>, layout: &Layout, params: QuantizationParams) -> Result<Self, CodecError> {
        if params.parameters != layout.len() {
            return Err(WrongLength { expected: layout.len(), got: params.parameters }.into());
        }
        let form = match spec {
            None => Form::Plain(Codec::new(params)?),
            Some(spec) => match Fitted::new(spec, layout, &params)? {
                Fitted::Summable { projection, range, bits, error_feedback } => {
                    Form::Summed(Box::new(Summed::new(projection, range, bits, error_feedback, &params)?))
                }
                Fitted::Expanded(codec) => Form::Compact(Box::new(Compact::new(codec, params)?)),
            },
        };
        Ok(Self { params, form })
    }

    #[must_use]
    pub fn params(&self) -> &QuantizationParams {
        &self.params
    }

    /// The plain codec, if there is no compression.
    #[must_use]
    pub fn plain(&self) -> Option<&Codec> {
        match &self.form {
            Form::Plain(codec) => Some(codec),
            Form::Summed(_) | Form::Compact(_) => None,
        }
    }

    /// Whether encoded updates can be added without expansion, and so be masked.
    #[must_use]
    pub fn is_summable(&self) -> bool {
        !matches!(self.form, Form::Compact(_))
    }

    /// Number of words in a sum, and in an upload if the codec is summable.
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

    /// Largest magnitude of a word of one update, read as a signed number.
    #[must_use]
    pub fn input_bound(&self) -> u64 {
        match &self.form {
            Form::Plain(codec) => codec.input_bound(),
            Form::Summed(summed) => summed.input_bound(),
            Form::Compact(compact) => compact.dense().input_bound(),
        }
    }

    /// Size of an upload in bytes; the same for every update.
    #[must_use]
    pub fn upload_bytes(&self) -> usize {
        match &self.form {
            Form::Compact(compact) => compact.bytes(),
            // Eight words always fill whole bytes.
            Form::Plain(_) | Form::Summed(_) => {
                let (words, bits) = (self.len(), usize::from(self.modulus_bits()));
                words / 8 * bits + (words % 8 * bits).div_ceil(8)
            }
        }
    }

    /// Compression ratio: size of the update in `f32` over size of an upload.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        4.0 * self.params.parameters as f64 / self.upload_bytes() as f64
    }

    /// Whether the codec keeps a residual between rounds.
    #[must_use]
    pub fn keeps_residual(&self) -> bool {
        match &self.form {
            Form::Plain(_) => false,
            Form::Summed(summed) => summed.keeps_residual(),
            Form::Compact(compact) => compact.keeps_residual(),
        }
    }

    /// Clips, adds the residual, compresses, weights and rounds. `seed` is public and shared by the whole round; `rng` is the participant's
    /// own. The encoding is lossless in total: the decoding of this update alone plus the new residual equals the clipped update plus the
    /// old residual.
    ///
    /// The norm bound applies to the training's change; the residual may exceed it.
    ///
    /// # Errors
    /// Any [`EncodeError`]. The participant keeps the error to itself and sends nothing.
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

    /// Expands an upload of a codec that is not summable into words to add. Pure: the same on every replica.
    ///
    /// # Errors
    /// Any [`UploadError`]: the bytes are not an encoder's output, or this codec's uploads are words already. Lengths are checked before
    /// anything is allocated.
    pub fn expand(&self, bytes: &[u8]) -> Result<Vec<u32>, UploadError> {
        match &self.form {
            Form::Compact(compact) => compact.expand(bytes),
            Form::Plain(_) | Form::Summed(_) => Err(UploadError::Summable),
        }
    }

    /// Checks that [`expand`](Self::expand) would accept these bytes, without producing the words.
    ///
    /// # Errors
    /// As for [`expand`](Self::expand).
    pub fn check(&self, bytes: &[u8]) -> Result<(), UploadError> {
        match &self.form {
            Form::Compact(compact) => compact.check(bytes),
            Form::Plain(_) | Form::Summed(_) => Err(UploadError::Summable),
        }
    }

    /// The weighted mean of the updates in a sum, which were encoded with `seed`.
    ///
    /// # Errors
    /// Any [`DecodeError`]; a sum that its participants cannot have produced is rejected, not published.
    pub fn decode(&self, sum: &NoisedSum, seed: &[u8; 32]) -> Result<Decoded, DecodeError> {
        let codec = match &self.form {
            Form::Summed(summed) => return summed.decode(sum, seed),
            Form::Plain(codec) => codec,
            Form::Compact(compact) => compact.dense(),
        };
        let (values, tail) = sum.words().split_at(self.params.parameters.min(sum.words().len()));
        let (tail, distortion) = self.decode_tail(sum.header(), tail)?;
        let delta = codec.decode_values(&tail, 0, values)?;
        Ok(Decoded { mean: tail.with(delta), distortion })
    }

    /// The codec for decoding a sum slice by slice ([`Codec::decode_values`]), each value from one word; `None` if a value depends on all
    /// words.
    #[must_use]
    pub fn by_word(&self) -> Option<&Codec> {
        match &self.form {
            Form::Plain(codec) => Some(codec),
            Form::Compact(compact) => Some(compact.dense()),
            Form::Summed(_) => None,
        }
    }

    /// Decodes the words after the values of a sum with this header, if values are decoded [`by_word`](Self::by_word).
    ///
    /// # Errors
    /// Any [`DecodeError`] but [`DecodeError::OutOfRange`].
    pub fn decode_tail(&self, sum: SumHeader, tail: &[u32]) -> Result<(SumTail, Option<Distortion>), DecodeError> {
        match &self.form {
            Form::Plain(codec) => Ok((codec.decode_tail(sum, tail)?, None)),
            Form::Compact(compact) => {
                let (tail, distortion) = compact.decode_tail(sum, tail)?;
                Ok((tail, Some(distortion)))
            }
            Form::Summed(_) => Err(DecodeError::Length { expected: self.len(), got: sum.words() }),
        }
    }

    /// An inspector for one unmasked update; `None` if uploads are bytes, for which [`check`](Self::check) is used.
    #[must_use]
    pub fn inspector(&self) -> Option<WeightedInspector> {
        match &self.form {
            Form::Plain(codec) => Some(WeightedInspector::Plain(codec.inspector())),
            Form::Summed(summed) => Some(WeightedInspector::Lanes(summed.inspector())),
            Form::Compact(_) => None,
        }
    }
}

/// Checks an update sent in the clear word by word, before it is added to others.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WeightedInspector {
    /// For the plain codec.
    Plain(Inspector),
    /// For a summable codec.
    Lanes(LanesInspector),
}

impl WeightedInspector {
    /// Checks the next word, which must be below 2^b.
    pub fn push(&mut self, word: u32) {
        match self {
            Self::Plain(inspector) => inspector.push(word),
            Self::Lanes(inspector) => inspector.push(word),
        }
    }

    /// Checks the next words, like [`Self::push`] on each.
    pub fn push_all(&mut self, words: &[u32]) {
        match self {
            Self::Plain(inspector) => inspector.push_all(words),
            Self::Lanes(inspector) => words.iter().for_each(|&word| inspector.push(word)),
        }
    }

    /// # Errors
    /// The first [`ImplausibleUpdate`] found: added to others, the update could spoil or wrap their sum.
    pub fn finish(self) -> Result<(), ImplausibleUpdate> {
        match self {
            Self::Plain(inspector) => inspector.finish(),
            Self::Lanes(inspector) => inspector.finish(),
        }
    }
}

#[cfg(test)]
mod tests;
