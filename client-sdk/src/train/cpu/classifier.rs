//! Rows or images to classes: `linear`, `mlp` and `cnn`.

use task_spec::TrainingPlan;

use super::super::constraints::Flat;
use super::super::error::TrainError;
use super::super::examples::Examples;
use super::super::learner::{Learner, LearnerState, Score, StepResult};
use super::buffer::Buffer;
use super::conv::Conv;
use super::core::{Core, TensorPosition};
use super::dense::{Batch, Chain, Dense};
use super::images::Images;
use super::loss::cross_entropy;
use super::passes::{Passes, step};
use crate::models::{Cnn, cnn};

/// Dense layers, after convolutions if the examples are images.
pub(super) struct Classifier {
    kind: &'static str,
    core: Core,
    /// Maximum number of examples in a chunk.
    batch: usize,
    images: Option<Images>,
    chain: Chain,
    /// The batch: examples (unless they are images) and labels.
    rows: Buffer,
    labels: Vec<u32>,
}

impl Classifier {
    /// Fully connected layers of these widths. `batch` is the maximum number of examples in a chunk.
    pub(super) fn dense(kind: &'static str, widths: &[u32], start: &[f32], plan: &TrainingPlan, batch: usize) -> Self {
        Self::new(kind, None, dense_layers(0, widths), start, plan, batch)
    }

    pub(super) fn cnn(sizes: &Cnn, start: &[f32], plan: &TrainingPlan, batch: usize) -> Self {
        let (height, width) = (sizes.height as usize, sizes.width as usize);
        let (first, second) = (cnn::FIRST_CHANNELS as usize, cnn::SECOND_CHANNELS as usize);
        let first = Conv::new(height, width, sizes.channels as usize, first, 0);
        let (height, width) = first.pooled();
        let second = Conv::new(height, width, first.dense.outputs, second, first.dense.end());
        let layers = dense_layers(second.dense.end(), &[sizes.features(), cnn::HIDDEN, sizes.classes]);
        Self::new("cnn", Some(Images::new(first, second, batch)), layers, start, plan, batch)
    }

    fn new(
        kind: &'static str,
        images: Option<Images>,
        layers: Vec<Dense>,
        start: &[f32],
        plan: &TrainingPlan,
        batch: usize,
    ) -> Self {
        let size = layers.last().map_or(0, Dense::end);
        let row = if images.is_some() { 0 } else { layers.first().map_or(0, |layer| layer.inputs) };
        Self {
            kind,
            core: Core::new(places(images.as_ref(), &layers), size, start, plan),
            batch,
            images,
            chain: Chain::new(layers, batch),
            rows: Buffer::zeros(row * batch),
            labels: Vec::with_capacity(batch),
        }
    }

    /// Loads the chosen examples and computes their logits.
    fn forward(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(), TrainError> {
        let Examples::Labelled { features, labels, width } = *examples else {
            return Err(TrainError::WrongKind { kind: self.kind, needs: "rows of features with labels" });
        };
        self.labels.clear();
        self.labels.extend(chosen.iter().map(|&example| labels[example]));
        for (index, &example) in chosen.iter().enumerate() {
            let row = &features[example * width..][..width];
            match &mut self.images {
                Some(images) => images.load(index, row),
                None => self.rows[index * width..][..width].copy_from_slice(row),
            }
        }
        let batch = match &mut self.images {
            Some(images) => {
                images.forward(self.core.arch, &self.core.parameters, chosen.len());
                Batch { rows: images.features(), step: images.width(), count: chosen.len() }
            }
            None => Batch { rows: &self.rows, step: width, count: chosen.len() },
        };
        self.chain.forward(self.core.arch, &self.core.parameters, batch);
        Ok(())
    }
}

impl Passes for Classifier {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn most(&self) -> usize {
        self.batch
    }

    fn backward(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Score, TrainError> {
        self.forward(examples, chosen)?;
        let (logits, delta, classes, step) = self.chain.logits();
        let score = cross_entropy(logits, classes, step, &self.labels, delta);
        let Core { arch, parameters, gradient, .. } = &mut self.core;
        let count = chosen.len();
        match &mut self.images {
            Some(images) => {
                let step = images.width();
                let (rows, delta) = images.features_and_delta();
                self.chain.backward(*arch, parameters, Batch { rows, step, count }, gradient, Some(delta));
                images.backward(*arch, parameters, count, gradient);
            }
            None => {
                let batch = Batch { rows: &self.rows, step: self.chain.layers()[0].inputs, count };
                self.chain.backward(*arch, parameters, batch, gradient, None);
            }
        }
        Ok(score)
    }
}

impl Learner for Classifier {
    fn step(
        &mut self,
        examples: &Examples<'_>,
        chosen: &[usize],
        rate: f32,
    ) -> Result<(Score, StepResult), TrainError> {
        step(self, examples, chosen, rate)
    }

    fn gradient(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Score, Vec<f32>), TrainError> {
        let score = self.backward(examples, chosen)?;
        Ok((score, self.core.flat_gradient()))
    }

    fn score(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Score, TrainError> {
        self.forward(examples, chosen)?;
        let (logits, _, classes, step) = self.chain.logits();
        Ok(cross_entropy(logits, classes, step, &self.labels, &mut []))
    }

    fn logits(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Vec<f32>, TrainError> {
        self.forward(examples, chosen)?;
        let (logits, _, classes, step) = self.chain.logits();
        Ok(logits.chunks(step).take(chosen.len()).flat_map(|row| &row[..classes]).copied().collect())
    }

    fn constrain(&mut self, constraints: &Flat<'_>) -> Result<(), TrainError> {
        self.core.constrain(constraints);
        Ok(())
    }

    fn values(&self) -> Result<Vec<f32>, TrainError> {
        Ok(self.core.flat_parameters())
    }

    fn state(&self) -> Result<LearnerState, TrainError> {
        Ok(self.core.state())
    }

    fn restore(&mut self, state: &LearnerState) -> Result<(), TrainError> {
        self.core.restore(state);
        Ok(())
    }
}

fn dense_layers(mut start: usize, widths: &[u32]) -> Vec<Dense> {
    let mut layers = Vec::with_capacity(widths.len());
    for pair in widths.windows(2) {
        let layer = Dense::new(pair[0] as usize, pair[1] as usize, start);
        start = layer.end();
        layers.push(layer);
    }
    layers
}

/// The layers' tensors in order: weights, then bias.
fn places(images: Option<&Images>, layers: &[Dense]) -> Vec<TensorPosition> {
    let mut places = Vec::new();
    let mut channels = 1;
    for conv in images.iter().flat_map(|images| images.layers()) {
        places.extend([
            TensorPosition::Weights { dense: conv.dense, channels: conv.channels },
            TensorPosition::Bias(conv.dense),
        ]);
        channels = conv.dense.outputs;
    }
    for &dense in layers {
        places.extend([TensorPosition::Weights { dense, channels }, TensorPosition::Bias(dense)]);
        channels = 1;
    }
    places
}
