//! From trained parameters to the bytes leaving the device, in the order required for privacy.
//!
//! Every contribution passes through [`masked_input`], or through [`masked_sums`] for an analysis, and becomes integers; under secure
//! aggregation these are indistinguishable from random ones. The pipeline is independent of rounds and networks. Personal tensors cannot
//! reach it, because it accepts only the shared layout.

use std::sync::Arc;

use bytes::Bytes;
use learning::analytics::{AnalyticsError, SumCodec};
use learning::parameters::first_not_finite;
use learning::privacy::{NoiseSampler, PrivateEncodeError};
use learning::quantize::EncodeError;
use learning::{
    Controls, Encoded, FairnessError, FedNova, FedNovaError, MetricValue, Parameters, QFfl, QuantizedUpdate, Residual,
    Scaffold, ScaffoldError, Update, Upload, WeightedCodec,
};
use rand_chacha::ChaCha20Rng;
use secure_agg::Signer;
use secure_agg::client::{Masking, Snapshot};
use secure_agg::codec::Message as _;
use secure_agg::mask::{self, MaskError, MaskPlan, Plane};
use secure_agg::modular::{InvalidModulus, Modulus};
use secure_agg::packing;
use secure_agg::rejection::Refusal;
use secure_agg::upload::PartTree;
use wire::Digest;
use zeroize::Zeroizing;

use super::PrivateRound;

/// How an update becomes words.
pub enum Encoder<'a> {
    /// With weight and metrics, by the task's codec; the generator for rounding may be repeatable.
    Plain {
        codec: &'a WeightedCodec,
        /// The residual of earlier updates, if the codec keeps one.
        residual: Option<&'a Residual>,
        /// The round's public seed for the codec.
        seed: &'a [u8; 32],
        /// Generator for rounding.
        rounding: &'a mut ChaCha20Rng,
    },
    /// Clipped and noised, without weight and metrics. A party able to repeat the generator can remove the noise, so the generator must be
    /// seeded with the system's randomness for this update only.
    Private(&'a PrivateRound, &'a mut ChaCha20Rng),
}

/// The weight of an update.
pub enum Weight<'a> {
    /// The examples it was trained on, up to the task's cap.
    Examples(u64),
    /// By the loss of the received model on the participant's own data: a higher loss weighs more (q-FFL).
    Loss(&'a QFfl, f64),
    /// By examples; the update is divided by the distance its steps cover, which is sent too (FedNova).
    Steps(&'a FedNova, f64, u64),
    /// Weight 1; the second half of the vector changes the control variate (SCAFFOLD).
    Controlled(&'a Scaffold, f64, Controls<'a>),
}

impl From<u64> for Weight<'_> {
    fn from(examples: u64) -> Self {
        Self::Examples(examples)
    }
}

/// A checked and weighted update.
#[derive(Debug)]
pub struct WeightedUpdate {
    pub update: Update,
    /// See [`MaskedInput::control`].
    pub control: Option<Box<Zeroizing<Vec<f32>>>>,
}

/// How the words of an update are hidden.
pub enum Protection<'a> {
    /// Unprotected: the task declares that it has no secure aggregation.
    Plaintext,
    /// By a session's masks, which cover this one input.
    Masks(Box<Masking>, &'a dyn Signer),
}

/// An encoded contribution, ready to be uploaded.
pub struct MaskedInput {
    /// Words of the task's modulus, packed without gaps.
    pub body: Bytes,
    /// SHA-256 of the body; the root of its parts where it has several.
    pub sha256: Digest,
    /// The parts of the upload; `None` if it is sent whole.
    pub parts: Option<Arc<PartTree>>,
    /// The session's signed part, under secure aggregation.
    pub signed: Option<SignedInput>,
    /// The codec's residual, to be stored once the input is accepted.
    pub residual: Option<Residual>,
    /// The resulting control variate, to be stored until it is known whether the input was counted.
    pub control: Option<Box<Zeroizing<Vec<f32>>>>,
}

/// The session's part of a masked input.
pub struct SignedInput {
    /// `secure_agg::messages::MaskedInput`, encoded; sent with the body.
    pub message: Bytes,
    /// The session's next snapshot, to be persisted together with the body before anything is sent.
    pub snapshot: Snapshot,
}

/// Sizes only: without masks these bytes are an update.
impl std::fmt::Debug for MaskedInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MaskedInput").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// Reasons a trainer's result is not sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// The trained parameters have another layout.
    #[error("training yielded parameters of another model: return the tensors that were given, in their order")]
    WrongLayout,
    /// Training diverged.
    #[error(
        "tensor {tensor:?} has a NaN or infinity at position {index} after training; a smaller learning rate may help"
    )]
    NotFinite {
        /// The tensor's name.
        tensor: String,
        /// Position within the tensor, row-major.
        index: usize,
    },
    /// The update cannot be weighted by loss.
    #[error(transparent)]
    Fairness(#[from] FairnessError),
    /// The distance of its steps is invalid.
    #[error(transparent)]
    Steps(#[from] FedNovaError),
    /// A control variate cannot be derived from it.
    #[error(transparent)]
    Control(#[from] ScaffoldError),
    /// The update cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The update cannot be encoded under the privacy mechanism.
    #[error(transparent)]
    Private(#[from] PrivateEncodeError),
    /// The sums of an analysis cannot be encoded.
    #[error(transparent)]
    Sums(#[from] AnalyticsError),
    /// Uploads of this codec cannot be masked.
    #[error("the task's codec yields no words that could be masked")]
    NotSummable,
    /// The task's modulus is invalid.
    #[error(transparent)]
    Modulus(#[from] InvalidModulus),
    /// The vector is longer than masks are defined for.
    #[error(transparent)]
    Mask(#[from] MaskError),
    /// The session rejects this input.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The privacy order: **check, clip, weigh, quantize, add noise, mask, pack**.
///
/// `received` and `trained` are the shared part of the model before and after training; `metrics` are in the task's order. A weight by loss
/// depends on the clipped norm, and a control variate on the sent update, so such updates are clipped when they are weighted. The masks
/// come from the system's randomness, drawn when the session began.
///
/// # Errors
/// [`PipelineError`]; nothing may be sent then.
pub fn masked_input<'a>(
    received: &Parameters,
    trained: Parameters,
    weight: impl Into<Weight<'a>>,
    metrics: Vec<MetricValue>,
    encoder: Encoder<'_>,
    protection: Protection<'_>,
) -> Result<MaskedInput, PipelineError> {
    let WeightedUpdate { update, control } = update(received, trained, weight, metrics)?;
    Ok(MaskedInput { control, ..masked_update(update, encoder, protection)? })
}

/// The first half of [`masked_input`], **check and weigh**: for updates stored for a later round.
///
/// # Errors
/// [`PipelineError`]; nothing may be sent then.
pub fn update<'a>(
    received: &Parameters,
    trained: Parameters,
    weight: impl Into<Weight<'a>>,
    metrics: Vec<MetricValue>,
) -> Result<WeightedUpdate, PipelineError> {
    check_finite(&trained)?;
    let between =
        |examples| Update::between(received, trained, examples, metrics).map_err(|_| PipelineError::WrongLayout);
    let mut control = None;
    let update = match weight.into() {
        Weight::Examples(examples) => between(examples)?,
        Weight::Loss(rule, loss) => rule.contribution(loss, between(1)?)?,
        Weight::Steps(rule, reach, examples) => rule.normalize(reach, between(examples)?)?,
        Weight::Controlled(rule, reach, controls) => {
            let (update, kept) = rule.contribution(reach, controls, between(1)?)?;
            control = Some(Box::new(Zeroizing::new(kept)));
            update
        }
    };
    Ok(WeightedUpdate { update, control })
}

/// The second half: **clip, quantize, add noise, mask, pack**. The update is dropped before packing: in addition to the
/// encoded words there is never more than one vector of the model's length.
///
/// # Errors
/// [`PipelineError`]; nothing may be sent then.
pub fn masked_update(
    update: Update,
    encoder: Encoder<'_>,
    protection: Protection<'_>,
) -> Result<MaskedInput, PipelineError> {
    let (Encoded { upload, residual }, modulus_bits) = match encoder {
        // Clipped to the norm bound, compressed, multiplied by the capped weight, rounded to integers modulo 2^b.
        Encoder::Plain { codec, residual, seed, rounding } => {
            (codec.encode(&update, residual, seed, rounding)?, codec.modulus_bits())
        }
        Encoder::Private(round, secrets) => {
            let words = noised(&update, round, secrets)?;
            (
                Encoded { upload: Upload::Words(QuantizedUpdate { words }), residual: None },
                round.quantizer.codec.params().modulus_bits,
            )
        }
    };
    drop(update);
    let input = match upload {
        Upload::Words(update) => protect(update.words, modulus_bits, protection)?,
        // Sent in the clear; the coordinator expands it before summing.
        Upload::Bytes(update) => match protection {
            Protection::Masks(..) => return Err(PipelineError::NotSummable),
            Protection::Plaintext => MaskedInput::in_the_clear(update.0),
        },
    };
    Ok(MaskedInput { residual, ..input })
}

/// The same path for the integers of an analysis, which the task's declared ranges bound: **check, mask, pack**.
///
/// # Errors
/// [`PipelineError`]; nothing may be sent then.
pub fn masked_sums(values: &[i64], codec: &SumCodec, protection: Protection<'_>) -> Result<MaskedInput, PipelineError> {
    protect(codec.encode(values)?, codec.modulus_bits(), protection)
}

/// The end of every path: it accepts only integers, and all data leaving the device passes through it.
fn protect(mut words: Vec<u32>, modulus_bits: u8, protection: Protection<'_>) -> Result<MaskedInput, PipelineError> {
    match protection {
        // Masked in place, packed, and signed together with sender, session and the masks' owners.
        Protection::Masks(masking, signer) => {
            let step = masking.mask(words, Vec::new(), signer)?;
            let signed = SignedInput { message: step.send.message.encode().into(), snapshot: step.persist };
            Ok(MaskedInput::new(step.send.body, step.send.tree, Some(signed)))
        }
        // The same path with an empty mask plan.
        Protection::Plaintext => {
            let modulus = Modulus::new(modulus_bits)?;
            mask::apply(&MaskPlan::new(Plane::Model, words.len() as u64, modulus)?, 0, &mut words)?;
            Ok(MaskedInput::in_the_clear(packing::pack(&words, modulus)))
        }
    }
}

/// Quantizes and noises a private update: its norm in integers is bounded after rounding, its weight is a factor
/// within the bound, and its share of the noise is added before anything else sees it.
fn noised(update: &Update, round: &PrivateRound, secrets: &mut ChaCha20Rng) -> Result<Vec<u32>, PrivateEncodeError> {
    #[cfg(feature = "deliberate-faults")]
    if let Some(fault) = round.fault {
        return fault.words(update, &round.quantizer, round.clip, &round.rotation_seed, secrets);
    }
    let mut words = round.quantizer.codec.encode(update, round.clip, &round.rotation_seed, secrets)?.words;
    // If the coordinator adds the noise, participants omit theirs.
    if let Some(shares) = round.quantizer.shares {
        NoiseSampler::new(shares.share).add_to(&mut words, round.quantizer.codec.params().modulus_bits, secrets);
    }
    Ok(words)
}

impl MaskedInput {
    fn in_the_clear(body: Vec<u8>) -> Self {
        let tree = PartTree::of(&body);
        Self::new(body, tree, None)
    }

    /// `tree` is the body's.
    fn new(body: Vec<u8>, tree: PartTree, signed: Option<SignedInput>) -> Self {
        let (sha256, parts) = (Digest(tree.name()), tree.is_parted().then(|| Arc::new(tree)));
        Self { body: body.into(), sha256, parts, signed, residual: None, control: None }
    }
}

/// Checks parameters rather than their difference, to name the tensor that is not finite.
///
/// # Errors
/// [`PipelineError::NotFinite`].
pub fn check_finite(trained: &Parameters) -> Result<(), PipelineError> {
    for (index, tensor) in trained.layout().tensors().iter().enumerate() {
        if let Some(index) = first_not_finite(trained.tensor(index)) {
            return Err(PipelineError::NotFinite { tensor: tensor.name.clone(), index });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use learning::analytics::Field;
    use learning::{Layout, QuantizationParams, TensorSpec};
    use rand::SeedableRng;

    use super::*;
    use crate::digest::sha256;

    fn parameters(name: &str, values: &[f32]) -> Parameters {
        let spec = TensorSpec { name: name.into(), shape: vec![values.len() as u64] };
        Parameters::new(Arc::new(Layout::new(vec![spec]).unwrap()), values.to_vec()).unwrap()
    }

    fn codec() -> WeightedCodec {
        let params = QuantizationParams {
            parameters: 3,
            modulus_bits: 20,
            clip_range: 1.0,
            clip_norm: None,
            max_weight: 8,
            max_cohort: 10,
            metrics: 0,
        };
        WeightedCodec::new(None, parameters("w", &[0.0; 3]).layout(), params).unwrap()
    }

    fn plain<'a>(codec: &'a WeightedCodec, rounding: &'a mut ChaCha20Rng) -> Encoder<'a> {
        Encoder::Plain { codec, residual: None, seed: &[0; 32], rounding }
    }

    fn run(trained: &Parameters) -> Result<MaskedInput, PipelineError> {
        let received = parameters("w", &[0.0, 1.0, 2.0]);
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        masked_input(&received, trained.clone(), 4, vec![], plain(&codec(), &mut rng), Protection::Plaintext)
    }

    #[test]
    fn bytes_hold_the_weighted_difference() {
        let input = run(&parameters("w", &[0.5, 1.0, 1.0])).unwrap();
        let codec = codec();
        assert_eq!(input.body.len(), (codec.len() * 20).div_ceil(8));
        assert_eq!(input.sha256, sha256(&input.body));
        let modulus = Modulus::new(20).unwrap();
        let words = packing::unpack(&input.body, codec.len(), modulus).unwrap();
        let unit = 4.0 * learning::Codec::new(*codec.params()).unwrap().scale();
        let expected = [0.5 * unit, 0.0, -unit];
        for (word, expected) in words.iter().zip(expected) {
            assert!((modulus.centre(*word) as f64 - expected).abs() <= 1.0);
        }
        assert_eq!(words[3], 4, "the weight rides behind the parameters");
    }

    #[test]
    fn sums_of_an_analysis_take_the_same_road() {
        let fields = [Field { len: 2, bound: 100 }, Field { len: 1, bound: 1 << 40 }];
        let codec = SumCodec::new(&fields, 20, 10).unwrap();
        let input = masked_sums(&[100, -7, 1 << 39], &codec, Protection::Plaintext).unwrap();
        let words = packing::unpack(&input.body, codec.len(), Modulus::new(20).unwrap()).unwrap();
        assert_eq!(words, codec.encode(&[100, -7, 1 << 39]).unwrap());
        assert_eq!(input.sha256, sha256(&input.body));
        let beyond = masked_sums(&[101, 0, 0], &codec, Protection::Plaintext).unwrap_err();
        assert!(matches!(beyond, PipelineError::Sums(_)), "{beyond}");
    }

    #[test]
    fn what_must_not_be_sent_is_refused_before_it_is_quantized() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = run(&parameters("w", &[0.0, bad, 0.0])).unwrap_err();
            assert_eq!(error, PipelineError::NotFinite { tensor: "w".into(), index: 1 });
        }
        assert_eq!(run(&parameters("v", &[0.0; 3])).unwrap_err(), PipelineError::WrongLayout);
        assert_eq!(run(&parameters("w", &[0.0; 2])).unwrap_err(), PipelineError::WrongLayout);
        let received = parameters("w", &[f32::MIN, 0.0, 0.0]);
        let trained = parameters("w", &[f32::MAX, 0.0, 0.0]);
        let (codec, mut rng) = (codec(), ChaCha20Rng::from_seed([1; 32]));
        let encoder = plain(&codec, &mut rng);
        let error = masked_input(&received, trained, 4, vec![], encoder, Protection::Plaintext).unwrap_err();
        assert_eq!(error, PipelineError::Encode(EncodeError::NotFinite { index: 0 }), "the difference overflows");
    }
}
