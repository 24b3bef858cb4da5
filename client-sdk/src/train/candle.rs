//! Training on candle: every model, on every device candle knows.

use candle_core::backprop::GradStore;
use candle_core::{D, DType, Device, Tensor, Var};
use candle_nn::loss::cross_entropy;
use candle_nn::ops::log_softmax;

use super::config::SgdConfig;
use super::error::TrainError;
use super::{Examples, Learner, Score};
use crate::models::Architecture;

/// A model on a candle device, ready to take steps.
pub(super) struct CandleLearner<'a> {
    architecture: &'a Architecture,
    config: &'a SgdConfig,
    device: &'a Device,
    parameters: Vec<Var>,
    /// Empty until the first step with momentum.
    velocity: Vec<Tensor>,
    /// Where the proximal term pulls to: where training began unless said otherwise; empty without it.
    anchor: Vec<Tensor>,
    /// Factors of the gradients; empty if every parameter may change.
    free: Vec<Tensor>,
}

impl<'a> CandleLearner<'a> {
    pub(super) fn new(
        architecture: &'a Architecture,
        start: &[f32],
        config: &'a SgdConfig,
        device: &'a Device,
    ) -> Result<Self, TrainError> {
        let layout = architecture.layout().map_err(TrainError::from)?;
        let mut parameters = Vec::with_capacity(layout.tensors().len());
        for (index, tensor) in layout.tensors().iter().enumerate() {
            // A checked layout's dimensions are below 2^28.
            let shape: Vec<usize> = tensor.shape.iter().filter_map(|&size| usize::try_from(size).ok()).collect();
            parameters.push(Var::from_slice(&start[layout.range(index)], shape, device)?);
        }
        let anchor = if config.proximal_mu == 0.0 {
            Vec::new()
        } else {
            parameters.iter().map(|parameter| parameter.as_detached_tensor().copy()).collect::<Result<_, _>>()?
        };
        Ok(Self { architecture, config, device, parameters, velocity: Vec::new(), anchor, free: Vec::new() })
    }

    /// A flat vector as tensors like the parameters.
    fn spread(&self, flat: &[f32]) -> Result<Vec<Tensor>, TrainError> {
        let mut rest = flat;
        let mut tensors = Vec::with_capacity(self.parameters.len());
        for parameter in &self.parameters {
            let (values, after) = rest.split_at(parameter.elem_count());
            tensors.push(Tensor::from_slice(values, parameter.shape(), self.device)?);
            rest = after;
        }
        Ok(tensors)
    }

    /// Logits and targets of the chosen examples.
    fn forward(&self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Tensor, Tensor), TrainError> {
        let (input, targets) = match *examples {
            Examples::Labelled { features, labels, width } => {
                let rows = gather(features, chosen, width);
                let labels = gather(labels, chosen, 1);
                (Tensor::from_vec(rows, (chosen.len(), width), self.device)?, labels)
            }
            Examples::Text { inputs, targets, length } => {
                let rows = gather(inputs, chosen, length);
                let targets = gather(targets, chosen, length);
                (Tensor::from_vec(rows, (chosen.len(), length), self.device)?, targets)
            }
        };
        let count = targets.len();
        let targets = Tensor::from_vec(targets, count, self.device)?;
        let parameters: Vec<Tensor> = self.parameters.iter().map(|parameter| parameter.as_tensor().clone()).collect();
        Ok((self.architecture.logits(&parameters, &input)?, targets))
    }

    fn backward(&self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Score, GradStore), TrainError> {
        let (logits, targets) = self.forward(examples, chosen)?;
        let mean = cross_entropy(&logits, &targets)?;
        let gradients = mean.backward()?;
        let predictions = targets.elem_count();
        #[expect(clippy::cast_precision_loss, reason = "batches are far below 2^53")]
        let loss = f64::from(mean.to_scalar::<f32>()?) * predictions as f64;
        Ok((Score { loss, correct: 0, predictions: predictions as u64 }, gradients))
    }
}

impl Learner for CandleLearner<'_> {
    fn step(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Score, TrainError> {
        let (score, gradients) = self.backward(examples, chosen)?;
        let momentum = f64::from(self.config.momentum);
        let mut velocity = Vec::new();
        for (index, parameter) in self.parameters.iter().enumerate() {
            let Some(gradient) = gradients.get(parameter) else { continue };
            let mut gradient = gradient.clone();
            let value = parameter.as_detached_tensor();
            if self.config.weight_decay != 0.0 {
                gradient = (gradient + value.affine(f64::from(self.config.weight_decay), 0.0)?)?;
            }
            if let Some(anchor) = self.anchor.get(index) {
                let pull = (&value - anchor)?;
                gradient = (gradient + pull.affine(f64::from(self.config.proximal_mu), 0.0)?)?;
            }
            if let Some(free) = self.free.get(index) {
                gradient = (gradient * free)?;
            }
            if let Some(velocity) = self.velocity.get(index) {
                gradient = (velocity.affine(momentum, 0.0)? + gradient)?;
            }
            parameter.set(&(&value - gradient.affine(f64::from(self.config.learning_rate), 0.0)?)?)?;
            velocity.push(gradient);
        }
        if momentum != 0.0 {
            self.velocity = velocity;
        }
        Ok(score)
    }

    fn gradient(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Score, Vec<f32>), TrainError> {
        let (score, gradients) = self.backward(examples, chosen)?;
        let mut flat = Vec::new();
        for parameter in &self.parameters {
            match gradients.get(parameter) {
                Some(gradient) => flat.extend(gradient.flatten_all()?.to_vec1::<f32>()?),
                None => flat.resize(flat.len() + parameter.elem_count(), 0.0),
            }
        }
        Ok((score, flat))
    }

    fn score(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Score, TrainError> {
        let (logits, targets) = self.forward(examples, chosen)?;
        let logits = logits.detach();
        let right = log_softmax(&logits, D::Minus1)?.gather(&targets.unsqueeze(1)?, 1)?;
        let loss = -f64::from(right.sum_all()?.to_scalar::<f32>()?);
        let hits = logits.argmax(D::Minus1)?.eq(&targets)?.to_dtype(DType::U32)?.to_vec1::<u32>()?;
        let correct = hits.iter().map(|&hit| u64::from(hit)).sum();
        Ok(Score { loss, correct, predictions: hits.len() as u64 })
    }

    fn constrain(&mut self, anchor: Option<&[f32]>, free: &[f32]) -> Result<(), TrainError> {
        if let Some(anchor) = anchor.filter(|_| self.config.proximal_mu != 0.0) {
            self.anchor = self.spread(anchor)?;
        }
        if !free.is_empty() {
            self.free = self.spread(free)?;
        }
        Ok(())
    }

    fn values(&self) -> Result<Vec<f32>, TrainError> {
        let mut flat = Vec::new();
        for parameter in &self.parameters {
            flat.extend(parameter.as_detached_tensor().flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(flat)
    }
}

/// The chosen rows of a matrix.
fn gather<T: Copy>(rows: &[T], chosen: &[usize], width: usize) -> Vec<T> {
    chosen.iter().flat_map(|&row| &rows[row * width..][..width]).copied().collect()
}
