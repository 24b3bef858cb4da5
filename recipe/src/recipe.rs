//! What a round computes: what both sides derive from what a participant is told.

use std::sync::Arc;

use learning::QuantizationParams;
use wire::participant::Encoding;

use crate::codec::Grid;
use crate::{RecipeError, Rule, Tensors, Told, UpdateCodec};

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
    pub fn new(told: &Told<'_>, tensors: Tensors, round: Option<u32>) -> Result<Self, RecipeError> {
        let grid = |terms| Grid::new(terms, tensors.shared.len() as u64, told.encoding.modulus_bits);
        let grid = told.privacy.filter(|_| tensors.analysis.is_none()).map(grid).transpose()?;
        Self::on_grid(told, tensors, grid.map(Arc::new), round)
    }

    /// The same, where the grid of a private task is known.
    pub(crate) fn on_grid(
        told: &Told<'_>,
        tensors: Tensors,
        grid: Option<Arc<Grid>>,
        round: Option<u32>,
    ) -> Result<Self, RecipeError> {
        let codec = match (&tensors.analysis, grid) {
            (Some(analysis), _) => UpdateCodec::Sums(Arc::clone(analysis)),
            (None, Some(grid)) => UpdateCodec::Private(grid),
            (None, None) => {
                let compression = told.encoding.compression.as_ref().map(|terms| &terms.codec);
                let params = quantization(told, &tensors);
                UpdateCodec::Plain(Arc::new(learning::UpdateCodec::new(compression, &tensors.published, params)?))
            }
        };
        let rule = Rule::new(told, &codec, round)?;
        Ok(Self { tensors, codec, rule })
    }
}

fn quantization(told: &Told<'_>, tensors: &Tensors) -> QuantizationParams {
    let Encoding { modulus_bits, clip_range, clip_norm, max_weight, max_cohort, solver, .. } = *told.encoding;
    let metrics = told.metrics.len() + solver.map_or(0, |solver| solver.extra_metrics());
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
