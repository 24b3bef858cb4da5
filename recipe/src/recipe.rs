//! A round's computation, derived by both sides from an assignment's terms.

use std::sync::Arc;

use learning::QuantizationParams;
use wire::participant::Encoding;

use crate::codec::PrivateQuantizer;
use crate::{AssignmentTerms, RecipeError, Tensors, UpdateCodec, Weighting};

/// The computation of a round.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The tensors it computes on.
    pub tensors: Tensors,
    /// The codec of updates.
    pub codec: UpdateCodec,
    /// The weight of an update.
    pub rule: Weighting,
}

impl Recipe {
    /// Derives the computation. `round` selects the learning rates with which FedNova measures steps; `None` uses the
    /// rates before any schedule.
    ///
    /// # Errors
    /// [`RecipeError`]: the codec cannot encode the update, or settings are incompatible.
    pub fn new(terms: &AssignmentTerms<'_>, tensors: Tensors, round: Option<u32>) -> Result<Self, RecipeError> {
        let quantizer =
            |privacy| PrivateQuantizer::new(privacy, tensors.shared.len() as u64, terms.encoding.modulus_bits);
        let quantizer = terms.privacy.map(quantizer).transpose()?;
        Self::with_quantizer(terms, tensors, quantizer.map(Arc::new), round)
    }

    /// The same, with the quantizer of a private task.
    pub(crate) fn with_quantizer(
        terms: &AssignmentTerms<'_>,
        tensors: Tensors,
        quantizer: Option<Arc<PrivateQuantizer>>,
        round: Option<u32>,
    ) -> Result<Self, RecipeError> {
        let codec = match (&tensors.analysis, quantizer) {
            (Some(analysis), None) => UpdateCodec::Sums(Arc::clone(analysis)),
            // The private form of an analysis is encoded like an update.
            (_, Some(quantizer)) => UpdateCodec::Private(quantizer),
            (None, None) => {
                let compression = terms.encoding.compression.as_ref().map(|compression| &compression.codec);
                let params = quantization(terms, &tensors);
                UpdateCodec::Plain(Arc::new(learning::WeightedCodec::new(compression, &tensors.published, params)?))
            }
        };
        let rule = Weighting::new(terms, &codec, round)?;
        Ok(Self { tensors, codec, rule })
    }
}

fn quantization(terms: &AssignmentTerms<'_>, tensors: &Tensors) -> QuantizationParams {
    let Encoding { modulus_bits, clip_range, clip_norm, max_weight, max_cohort, solver, .. } = *terms.encoding;
    let metrics = terms.metrics.len() + solver.map_or(0, |solver| solver.extra_metrics());
    QuantizationParams {
        parameters: tensors.published.len(),
        modulus_bits,
        clip_range,
        clip_norm,
        max_weight,
        max_cohort,
        metrics,
    }
}
