//! What a round computes: what both sides derive from what a participant is told.

use std::sync::Arc;

use learning::QuantizationParams;
use wire::participant::Encoding;

use crate::codec::PrivateQuantizer;
use crate::{AssignmentTerms, RecipeError, Rule, Tensors, UpdateCodec};

/// What a round computes.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// On which tensors.
    pub tensors: Tensors,
    /// How an update becomes integers.
    pub codec: UpdateCodec,
    /// What an update weighs.
    pub rule: Rule,
}

impl Recipe {
    /// Derives it. `round` decides the learning rates that FedNova counts steps by; none counts them by the rates as they are
    /// before any schedule.
    ///
    /// # Errors
    /// [`RecipeError`]: what the codec cannot encode, or what does not go together.
    pub fn new(terms: &AssignmentTerms<'_>, tensors: Tensors, round: Option<u32>) -> Result<Self, RecipeError> {
        let quantizer =
            |privacy| PrivateQuantizer::new(privacy, tensors.shared.len() as u64, terms.encoding.modulus_bits);
        let quantizer = terms.privacy.filter(|_| tensors.analysis.is_none()).map(quantizer).transpose()?;
        Self::with_quantizer(terms, tensors, quantizer.map(Arc::new), round)
    }

    /// The same, where the grid of a private task is known.
    pub(crate) fn with_quantizer(
        terms: &AssignmentTerms<'_>,
        tensors: Tensors,
        quantizer: Option<Arc<PrivateQuantizer>>,
        round: Option<u32>,
    ) -> Result<Self, RecipeError> {
        let codec = match (&tensors.analysis, quantizer) {
            (Some(analysis), _) => UpdateCodec::Sums(Arc::clone(analysis)),
            (None, Some(quantizer)) => UpdateCodec::Private(quantizer),
            (None, None) => {
                let compression = terms.encoding.compression.as_ref().map(|compression| &compression.codec);
                let params = quantization(terms, &tensors);
                UpdateCodec::Plain(Arc::new(learning::UpdateCodec::new(compression, &tensors.published, params)?))
            }
        };
        let rule = Rule::new(terms, &codec, round)?;
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
