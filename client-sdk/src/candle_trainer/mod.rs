//! The trainer of an app's own candle module, by the task's plan on the app's data.
//!
//! The task lists the module's tensors with names and shapes (`model.tensors`). The module takes them from a `VarBuilder`, as candle's
//! layers do. The loss is a function of the module and a batch. Everything else follows the task: batches, learning rates, SGD
//! or AdamW, FedProx, SCAFFOLD, clipping, personalization, budgets, checkpoints, and the device.
//!
//! ```
//! use client_sdk::candle_trainer::candle_core::{Result, Tensor};
//! use client_sdk::candle_trainer::candle_nn::{Linear, Module as _, VarBuilder, linear, loss};
//! use client_sdk::{CandleTrainer, Dataset};
//!
//! struct Net {
//!     hidden: Linear,
//!     out: Linear,
//! }
//!
//! impl Net {
//!     /// Takes `hidden.weight`, `hidden.bias`, `out.weight` and `out.bias`.
//!     fn new(vb: VarBuilder<'_>) -> Result<Self> {
//!         Ok(Self { hidden: linear(4, 8, vb.pp("hidden"))?, out: linear(8, 3, vb.pp("out"))? })
//!     }
//!
//!     fn loss(&self, (rows, labels): &(Tensor, Tensor)) -> Result<Tensor> {
//!         loss::cross_entropy(&self.out.forward(&self.hidden.forward(rows)?.gelu()?)?, labels)
//!     }
//! }
//!
//! let rows = Dataset::Labelled { features: vec![0.5; 40], labels: vec![1; 10], width: 4 };
//! let trainer = CandleTrainer::new(|vb| Net::new(vb), |net, batch| net.loss(batch), rows);
//! # let _: &dyn client_sdk::Trainer = &trainer;
//! ```
//!
//! Some operations of candle have no gradient or a wrong one. The first step of a training refuses tensors without a gradient. Once per
//! trainer, it also compares every tensor's gradient with finite differences.

use std::cell::Cell;
use std::sync::Arc;

pub use candle_core;
use candle_core::{Result, Tensor};
pub use candle_nn;
use candle_nn::VarBuilder;
use learning::{Adapters, MetricValue, Parameters};
use task_spec::Budget;

use crate::clock::{Clock, SystemClock};
use crate::model_trainer::Dataset;
use crate::model_trainer::in_round::{InRound, judge, moved};
use crate::train::{self, AdaptedBase, Device, Module, Sgd};
use crate::trainer::{Constraints, Trained, Trainer, TrainerError, TrainingJob};

/// Data of an app, as batches for its module.
pub trait CandleData: Send {
    /// Some examples as the loss takes them.
    type Batch;

    /// Number of examples.
    fn count(&self) -> usize;

    /// The examples with these indices, each below [`Self::count`], on `device`.
    ///
    /// # Errors
    /// Any error of candle; the training ends with it.
    fn batch(&self, chosen: &[usize], device: &candle_core::Device) -> Result<Self::Batch>;
}

/// Rows `[batch, width]` in `f32` with classes `[batch]` in `u32`, or characters `[batch, length]` with the next ones, both in `u32`.
impl CandleData for Dataset {
    type Batch = (Tensor, Tensor);

    fn count(&self) -> usize {
        self.with_examples(|examples| examples.count())
    }

    fn batch(&self, chosen: &[usize], device: &candle_core::Device) -> Result<Self::Batch> {
        match self {
            Self::Labelled { features, labels, width } => {
                let features = Tensor::from_vec(gather(features, chosen, *width)?, (chosen.len(), *width), device)?;
                Ok((features, Tensor::from_vec(gather(labels, chosen, 1)?, chosen.len(), device)?))
            }
            Self::Text { inputs, targets, length } => {
                let shape = (chosen.len(), *length);
                let inputs = Tensor::from_vec(gather(inputs, chosen, *length)?, shape, device)?;
                Ok((inputs, Tensor::from_vec(gather(targets, chosen, *length)?, shape, device)?))
            }
            Self::Tensors { .. } => candle_core::bail!(
                "a dataset of named inputs is for graphs; for a module of candle, implement `CandleData` for the app's data"
            ),
        }
    }
}

/// The chosen rows of a matrix.
fn gather<T: Copy>(rows: &[T], chosen: &[usize], width: usize) -> Result<Vec<T>> {
    let mut gathered = Vec::with_capacity(chosen.len() * width);
    for &row in chosen {
        let Some(values) = rows.get(row * width..(row + 1) * width) else {
            candle_core::bail!("example {row} has no {width} values: the data have {}", rows.len());
        };
        gathered.extend_from_slice(values);
    }
    Ok(gathered)
}

type Build<N> = Box<dyn Fn(VarBuilder<'static>) -> Result<N> + Send>;
type Loss<N, B> = Box<dyn Fn(&N, &B) -> Result<Tensor> + Send>;
type Metrics<N, B> = Box<dyn Fn(&N, &B) -> Result<Vec<(String, f64)>> + Send>;

/// Trains a candle module `N` on data `D`.
pub struct CandleTrainer<N, D: CandleData> {
    build: Build<N>,
    loss: Loss<N, D::Batch>,
    metrics: Option<Metrics<N, D::Batch>>,
    training: D,
    held_out: Option<D>,
    device: Device,
    frozen: Vec<String>,
    is_verified: Cell<bool>,
    budget: Budget,
    clock: Arc<dyn Clock>,
    base: Option<Arc<Parameters>>,
}

impl<N, D: CandleData> CandleTrainer<N, D> {
    /// `build` takes every tensor of the task from the builder, and is called for each batch. `loss` returns one number, the mean over
    /// the batch. Both must be functions of their arguments: a training is repeated and continued after a pause.
    ///
    /// The builder has the element type of the passes, which inputs must have too: `f32`, or on a GPU that of the task's
    /// `training.precision`.
    pub fn new(
        build: impl Fn(VarBuilder<'static>) -> Result<N> + Send + 'static,
        loss: impl Fn(&N, &D::Batch) -> Result<Tensor> + Send + 'static,
        training: D,
    ) -> Self {
        Self {
            build: Box::new(build),
            loss: Box::new(loss),
            metrics: None,
            training,
            held_out: None,
            device: Device::Cpu,
            frozen: Vec::new(),
            is_verified: Cell::new(false),
            budget: Budget::default(),
            clock: Arc::new(SystemClock::new()),
            base: None,
        }
    }

    /// Evaluates received models on these examples, which must not overlap the training examples: metric `loss`.
    #[must_use]
    pub fn with_held_out(self, held_out: D) -> Self {
        Self { held_out: Some(held_out), ..self }
    }

    /// Adds metrics of received models: for a batch of held-out examples, the mean of each. A metric `loss` replaces the mean of the
    /// loss function.
    #[must_use]
    pub fn with_metrics(self, metrics: impl Fn(&N, &D::Batch) -> Result<Vec<(String, f64)>> + Send + 'static) -> Self {
        Self { metrics: Some(Box::new(metrics)), ..self }
    }

    /// Computes on this device. Default: the CPU, with candle.
    #[must_use]
    pub fn on(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// Leaves the tensors with these names out of training. The module's own forward pass may change them, as it does running
    /// statistics of a batch normalization; they are part of the update like all others.
    #[must_use]
    pub fn with_frozen<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Self {
        Self { frozen: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// Omits the comparison of gradients with finite differences, for modules that detach values or draw random numbers on purpose.
    /// Tensors without a gradient are still refused.
    #[must_use]
    pub fn without_gradient_check(self) -> Self {
        Self { is_verified: Cell::new(true), ..self }
    }

    /// Stops after this many steps or this much time per round, in addition to the task's budget.
    #[must_use]
    pub fn with_budget(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// Uses this clock for budgets instead of the system's.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Provides the base model that tasks with shared adapters name by digest.
    #[must_use]
    pub fn with_base(self, base: impl Into<Arc<Parameters>>) -> Self {
        Self { base: Some(base.into()), ..self }
    }

    fn candle_device(&self) -> &candle_core::Device {
        match &self.device {
            Device::Cpu => &candle_core::Device::Cpu,
            Device::Candle(device) => device,
        }
    }

    /// The loss of the chosen training examples.
    fn training_loss(&self, vb: VarBuilder<'static>, chosen: &[usize]) -> Result<Tensor> {
        let net = (self.build)(vb)?;
        (self.loss)(&net, &self.training.batch(chosen, self.candle_device())?)
    }

    /// Metrics of the chosen held-out examples.
    fn score(&self, held_out: &D, vb: VarBuilder<'static>, chosen: &[usize]) -> Result<Vec<(String, f64)>> {
        let net = (self.build)(vb)?;
        let batch = held_out.batch(chosen, self.candle_device())?;
        let mut scores = match &self.metrics {
            Some(metrics) => metrics(&net, &batch)?,
            None => Vec::new(),
        };
        if !scores.iter().any(|(name, _)| name == "loss") {
            let loss = (self.loss)(&net, &batch)?.to_dtype(candle_core::DType::F32)?.mean_all()?;
            scores.push(("loss".to_owned(), loss.to_scalar::<f32>()?.into()));
        }
        Ok(scores)
    }

    /// Calls `train` with the module.
    fn with_module<T>(&self, train: impl FnOnce(Module<'_>) -> T) -> T {
        train(Module {
            loss: &|vb, chosen| self.training_loss(vb, chosen),
            count: self.training.count(),
            device: self.candle_device(),
            has_precision: matches!(self.device, Device::Candle(_)),
            frozen: &self.frozen,
            is_verified: &self.is_verified,
        })
    }
}

impl<N, D: CandleData> Trainer for CandleTrainer<N, D> {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> std::result::Result<Trained, TrainerError> {
        self.train_within(model, job, Constraints::default())
    }

    fn train_within(
        &mut self,
        model: &Parameters,
        job: &TrainingJob,
        constraints: Constraints<'_>,
    ) -> std::result::Result<Trained, TrainerError> {
        let sgd = Sgd { plan: &job.plan, seed: job.seed };
        let mut steering = InRound::new(job, self.budget, &*self.clock);
        let trained = self
            .with_module(|module| train::train_module(module, model, sgd, constraints, &mut steering))
            .map_err(judge)?;
        moved(model, &trained, job)
    }

    fn train_adapters(
        &mut self,
        base: &Parameters,
        start: &Parameters,
        job: &TrainingJob,
        adapters: &Adapters,
    ) -> std::result::Result<Trained, TrainerError> {
        let sgd = Sgd { plan: &job.plan, seed: job.seed };
        let adapted = AdaptedBase { base, start, adapters };
        let mut steering = InRound::new(job, self.budget, &*self.clock);
        let trained = self
            .with_module(|module| train::train_module_adapters(module, adapted, sgd, &mut steering))
            .map_err(judge)?;
        moved(start, &trained, job)
    }

    fn base_model(&mut self, job: &TrainingJob) -> std::result::Result<Parameters, TrainerError> {
        let base = self.base.as_deref().cloned();
        base.ok_or_else(|| {
            let problem = "trains adapters of a model that apps bring; give it to `CandleTrainer::with_base`";
            TrainerError::refused(format!("task {:?} {problem}", job.task))
        })
    }

    fn evaluate(
        &mut self,
        model: &Parameters,
        _: &TrainingJob,
    ) -> std::result::Result<Vec<(String, MetricValue)>, TrainerError> {
        let Some(held_out) = self.held_out.as_ref().filter(|held_out| held_out.count() > 0) else {
            return Ok(Vec::new());
        };
        let count = held_out.count();
        let score = |vb: VarBuilder<'static>, chosen: &[usize]| self.score(held_out, vb, chosen);
        let scores = train::evaluate_module(model, self.candle_device(), count, &score).map_err(judge)?;
        let metric = |(name, value)| (name, MetricValue { value, count: count as u64 });
        Ok(scores.into_iter().map(metric).collect())
    }

    fn examples(&self) -> u64 {
        self.training.count() as u64
    }

    fn pauses(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod trap_tests;
