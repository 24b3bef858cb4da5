//! From trained parameters to the bytes that leave the device, in the one order that keeps them private.
//!
//! Whatever a participant contributes passes through [`masked_input`], or [`masked_sums`] where an analysis adds up its rows
//! instead of training, and it can yield nothing but integers: under secure
//! aggregation such as nobody can tell from noise. It knows no rounds and no network; personal tensors cannot reach it,
//! because it is only ever given the shared layout.

use bytes::Bytes;
use learning::analytics::{AnalyticsError, SumCodec};
use learning::parameters::first_not_finite;
use learning::privacy::{NoiseSampler, PrivateEncodeError};
use learning::quantize::EncodeError;
use learning::{
    Controls, Encoded, FairnessError, FedNova, FedNovaError, MetricValue, Parameters, QFfl, QuantizedUpdate, Residual,
    Scaffold, ScaffoldError, Update, UpdateCodec, Upload,
};
use rand_chacha::ChaCha20Rng;
use secure_agg::Signer;
use secure_agg::client::{Masking, Snapshot};
use secure_agg::codec::Message as _;
use secure_agg::mask::{self, MaskError, MaskPlan, Plane};
use secure_agg::modular::{InvalidModulus, Modulus};
use secure_agg::packing;
use secure_agg::rejection::Refusal;
use wire::Digest;
use zeroize::Zeroizing;

use super::PrivateRound;
use crate::digest::sha256;

/// How an update becomes words.
pub enum Encoder<'a> {
    /// With its weight and its metrics, by the task's codec; rounding draws from a generator that may be repeatable.
    Plain {
        codec: &'a UpdateCodec,
        /// What it left out of earlier updates.
        residual: Option<&'a Residual>,
        /// Public, and the same for the whole round.
        seed: &'a [u8; 32],
        /// For rounding.
        rounding: &'a mut ChaCha20Rng,
    },
    /// Clipped to a norm and noised, and neither weight nor metrics travel. Whoever can repeat the generator can take the
    /// noise off: it must have been seeded with the system's randomness for this one update.
    Private(&'a PrivateRound, &'a mut ChaCha20Rng),
}

/// What an update counts for.
pub enum Weight<'a> {
    /// The examples it was trained on, up to the task's cap.
    Examples(u64),
    /// The loss of the received model on the participant's own data: the worse, the more (q-FFL).
    Loss(&'a QFfl, f64),
    /// Examples again; what is sent is divided by how far its steps go, and says so (FedNova).
    Steps(&'a FedNova, f64, u64),
    /// One, of a vector whose second half changes the control variate by what such steps tell (SCAFFOLD).
    Controlled(&'a Scaffold, f64, Controls<'a>),
}

impl From<u64> for Weight<'_> {
    fn from(examples: u64) -> Self {
        Self::Examples(examples)
    }
}

/// An update that was checked and weighed.
#[derive(Debug)]
pub struct WeightedUpdate {
    /// As the codec takes it.
    pub update: Update,
    /// See [`MaskedInput::control`].
    pub control: Option<Box<Zeroizing<Vec<f32>>>>,
}

/// What hides the words of an update.
pub enum Protection<'a> {
    /// Nothing: the task is without secure aggregation, and says so.
    Plaintext,
    /// The masks of a session; they cover one input and are gone.
    Masks(Box<Masking>, &'a dyn Signer),
}

/// What is uploaded.
pub struct MaskedInput {
    /// Words of the task's modulus, packed without gaps.
    pub body: Bytes,
    /// SHA-256 of the body.
    pub sha256: Digest,
    /// What a session needs besides.
    pub signed: Option<SignedInput>,
    /// What the codec left out: to be kept once the input is taken.
    pub residual: Option<Residual>,
    /// The control variate that it makes: to be kept until it is known whether the input was counted.
    pub control: Option<Box<Zeroizing<Vec<f32>>>>,
}

/// The session's part of a masked input.
pub struct SignedInput {
    /// `secure_agg::messages::MaskedInput`, encoded: goes with the body.
    pub message: Bytes,
    /// The session after this: to be kept, before anything is sent, together with the body.
    pub snapshot: Snapshot,
}

/// Sizes only: without masks these bytes are an update.
impl std::fmt::Debug for MaskedInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MaskedInput").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// Why what a trainer yielded is not sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// The trained parameters are another model's.
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
    /// The update cannot be weighed by loss.
    #[error(transparent)]
    Fairness(#[from] FairnessError),
    /// Its steps cannot be told.
    #[error(transparent)]
    Steps(#[from] FedNovaError),
    /// It makes no control variate.
    #[error(transparent)]
    Control(#[from] ScaffoldError),
    /// The difference cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The same, under a privacy mechanism.
    #[error(transparent)]
    Private(#[from] PrivateEncodeError),
    /// The sums of an analysis cannot be encoded.
    #[error(transparent)]
    Sums(#[from] AnalyticsError),
    /// Uploads of this codec cannot be masked.
    #[error("the task's codec yields no words that could be masked")]
    NotSummable,
    /// The task's modulus is none.
    #[error(transparent)]
    Modulus(#[from] InvalidModulus),
    /// The vector is longer than masks are defined for.
    #[error(transparent)]
    Mask(#[from] MaskError),
    /// The session does not take this input.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The privacy order: **check, clip, weigh, quantize, add noise, mask, pack**.
///
/// `received` and `trained` are the shared part of the model before and after training; `metrics` are in the task's order.
/// A weight by loss depends on the clipped length, and a control variate keeps what is sent of it, so such updates are clipped where
/// they are weighed.
/// Masks were agreed from the system's randomness when the session began.
///
/// # Errors
/// [`PipelineError`]; nothing may be sent then.
pub fn masked_input<'a>(
    received: &Parameters,
    trained: &Parameters,
    weight: impl Into<Weight<'a>>,
    metrics: Vec<MetricValue>,
    encoder: Encoder<'_>,
    protection: Protection<'_>,
) -> Result<MaskedInput, PipelineError> {
    let WeightedUpdate { update, control } = update(received, trained, weight, metrics)?;
    Ok(MaskedInput { control, ..masked_update(&update, encoder, protection)? })
}

/// The first half of [`masked_input`], **check and weigh**: for a participant that keeps its update for a later round.
///
/// # Errors
/// [`PipelineError`]; nothing may be sent then.
pub fn update<'a>(
    received: &Parameters,
    trained: &Parameters,
    weight: impl Into<Weight<'a>>,
    metrics: Vec<MetricValue>,
) -> Result<WeightedUpdate, PipelineError> {
    check_finite(trained)?;
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

/// The second half: **clip, quantize, add noise, mask, pack**.
///
/// # Errors
/// [`PipelineError`]; nothing may be sent then.
pub fn masked_update(
    update: &Update,
    encoder: Encoder<'_>,
    protection: Protection<'_>,
) -> Result<MaskedInput, PipelineError> {
    let (Encoded { upload, residual }, modulus_bits) = match encoder {
        // Scaled to the norm bound, compressed, multiplied by its capped weight, rounded to integers modulo 2^b.
        Encoder::Plain { codec, residual, seed, rounding } => {
            (codec.encode(update, residual, seed, rounding)?, codec.modulus_bits())
        }
        Encoder::Private(round, secrets) => {
            let words = noised(update, round, secrets)?;
            (
                Encoded { upload: Upload::Words(QuantizedUpdate { words }), residual: None },
                round.quantizer.codec.params().modulus_bits,
            )
        }
    };
    let input = match upload {
        Upload::Words(update) => protect(update.words, modulus_bits, protection)?,
        // Read by the coordinator, which expands it before it is added.
        Upload::Bytes(update) => match protection {
            Protection::Masks(..) => return Err(PipelineError::NotSummable),
            Protection::Plaintext => MaskedInput::new(update.0, None),
        },
    };
    Ok(MaskedInput { residual, ..input })
}

/// The same road for the integers of an analysis, which are bounded by what the task declares: **check, mask, pack**.
///
/// # Errors
/// [`PipelineError`]; nothing may be sent then.
pub fn masked_sums(values: &[i64], codec: &SumCodec, protection: Protection<'_>) -> Result<MaskedInput, PipelineError> {
    protect(codec.encode(values)?, codec.modulus_bits(), protection)
}

/// The end of every road: nothing but integers comes here, and nothing leaves without passing.
fn protect(mut words: Vec<u32>, modulus_bits: u8, protection: Protection<'_>) -> Result<MaskedInput, PipelineError> {
    match protection {
        // Masked in place, packed, and signed: who sends it, in which session, over whose masks.
        Protection::Masks(masking, signer) => {
            let step = masking.mask(words, Vec::new(), signer)?;
            let signed = SignedInput { message: step.send.message.encode().into(), snapshot: step.persist };
            Ok(MaskedInput::new(step.send.body, Some(signed)))
        }
        // The same road with an empty plan.
        Protection::Plaintext => {
            let modulus = Modulus::new(modulus_bits)?;
            mask::apply(&MaskPlan::new(Plane::Model, words.len() as u64, modulus)?, 0, &mut words)?;
            Ok(MaskedInput::new(packing::pack(&words, modulus), None))
        }
    }
}

/// The same order, of which no sum can be told apart from one without this update: its length in integers is bounded after
/// rounding, its weight is a factor within the bound, and its share of the noise is added before anything else sees it.
fn noised(update: &Update, round: &PrivateRound, secrets: &mut ChaCha20Rng) -> Result<Vec<u32>, PrivateEncodeError> {
    #[cfg(feature = "deliberate-faults")]
    if let Some(fault) = round.fault {
        return fault.words(update, &round.quantizer, round.clip, &round.rotation_seed, secrets);
    }
    let mut words = round.quantizer.codec.encode(update, round.clip, &round.rotation_seed, secrets)?.words;
    // Where the coordinator adds the noise, there is none of ours.
    if let Some(shares) = round.quantizer.shares {
        NoiseSampler::new(shares.share).add_to(&mut words, round.quantizer.codec.params().modulus_bits, secrets);
    }
    Ok(words)
}

impl MaskedInput {
    fn new(body: Vec<u8>, signed: Option<SignedInput>) -> Self {
        let body = Bytes::from(body);
        Self { sha256: sha256(&body), body, signed, residual: None, control: None }
    }
}

/// Parameters that are not finite say which tensor went wrong, which a difference could not.
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
    use std::sync::Arc;

    use learning::analytics::Field;
    use learning::{Layout, QuantizationParams, TensorSpec};
    use rand::SeedableRng;

    use super::*;

    fn parameters(name: &str, values: &[f32]) -> Parameters {
        let spec = TensorSpec { name: name.into(), shape: vec![values.len() as u64] };
        Parameters::new(Arc::new(Layout::new(vec![spec]).unwrap()), values.to_vec()).unwrap()
    }

    fn codec() -> UpdateCodec {
        let params = QuantizationParams {
            parameters: 3,
            modulus_bits: 20,
            clip_range: 1.0,
            clip_norm: None,
            max_weight: 8,
            max_cohort: 10,
            metrics: 0,
        };
        UpdateCodec::new(None, parameters("w", &[0.0; 3]).layout(), params).unwrap()
    }

    fn plain<'a>(codec: &'a UpdateCodec, rounding: &'a mut ChaCha20Rng) -> Encoder<'a> {
        Encoder::Plain { codec, residual: None, seed: &[0; 32], rounding }
    }

    fn run(trained: &Parameters) -> Result<MaskedInput, PipelineError> {
        let received = parameters("w", &[0.0, 1.0, 2.0]);
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        masked_input(&received, trained, 4, vec![], plain(&codec(), &mut rng), Protection::Plaintext)
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
        let error = masked_input(&received, &trained, 4, vec![], encoder, Protection::Plaintext).unwrap_err();
        assert_eq!(error, PipelineError::Encode(EncodeError::NotFinite { index: 0 }), "the difference overflows");
    }
}
