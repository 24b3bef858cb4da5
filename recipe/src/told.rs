//! What a participant is told that decides its update, and what both sides derive from it.

use std::sync::Arc;

use learning::QuantizationParams;
use task_spec::{ModelSpec, TrainingPlan};
use wire::Digest;
use wire::participant::{Assignment, Encoding, PrivacyTerms};

use crate::codec::Grid;
use crate::digest::{application_digest, round_digest, training_digest};
use crate::{RecipeError, Rule, Tensors, UpdateCodec};

/// What decides an update besides data, version and chance.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// Name of the task.
    pub task: &'a str,
    /// The tensors, and which of them stay local.
    pub model: &'a ModelSpec,
    /// How the model is trained, with the μ of the round.
    pub training: &'a TrainingPlan,
    /// How the update is encoded.
    pub encoding: &'a Encoding,
    /// Names of the metrics that travel, in their order.
    pub metrics: &'a [String],
    /// What a privacy mechanism promises in the round.
    pub privacy: Option<&'a PrivacyTerms>,
}

impl<'a> From<&'a Assignment> for Told<'a> {
    fn from(assignment: &'a Assignment) -> Self {
        let Assignment { task_name, model, training, encoding, metrics, privacy, .. } = assignment;
        Self { task: task_name, model, training, encoding, metrics, privacy: privacy.as_ref() }
    }
}

impl Told<'_> {
    /// [`application_digest`] of it.
    #[must_use]
    pub fn application(&self) -> Digest {
        application_digest(self.encoding, self.metrics, self.privacy)
    }

    /// [`training_digest`] of it.
    #[must_use]
    pub fn training(&self) -> Digest {
        training_digest(&self.application(), self.task, self.model, self.training)
    }

    /// [`round_digest`] of it, in a round that starts from this version.
    #[must_use]
    pub fn in_round(&self, version: u32, earlier: &[Digest]) -> Digest {
        round_digest(&self.training(), version, earlier)
    }
}

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
        Self::on_grid(told, tensors, grid, round)
    }

    /// The same, where the grid of a private task is known.
    pub(crate) fn on_grid(
        told: &Told<'_>,
        tensors: Tensors,
        grid: Option<Grid>,
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
