//! A participant's trainer over a shard of ready-made data: the SDK's own training, on the model the task names.
//!
//! In the demo many participants share a machine: [`Slots`] bounds how many train at once. Who waits how long for a slot
//! cannot change a result, since each training is a function of its inputs.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use client_sdk::models::Architecture;
use client_sdk::train::{self, Device, SgdConfig};
use client_sdk::{Trained, Trainer, TrainerError, TrainingJob};
use datasets::Dataset;
use learning::{MetricValue, Parameters};
use wire::task::TrainingPlan;

use crate::command::model::examples;

/// How many may train at once.
pub(crate) struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Slots {
    /// So many, at least one.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(count.max(1)), freed: Condvar::new() })
    }

    /// Waits for a slot and works in it.
    fn with<T>(&self, work: impl FnOnce() -> T) -> T {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        drop(free);
        let _slot = Slot(self);
        work()
    }
}

/// Gives its slot back, also if the work panics.
struct Slot<'a>(&'a Slots);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// Trains on one shard.
pub(crate) struct ShardTrainer {
    train: Arc<Dataset>,
    held_out: Arc<Dataset>,
    device: Device,
    slots: Arc<Slots>,
}

impl ShardTrainer {
    /// Trains on `train`, evaluates on `held_out` (which may be empty), on `device`.
    pub(crate) fn new(train: Arc<Dataset>, held_out: Arc<Dataset>, device: Device, slots: Arc<Slots>) -> Self {
        Self { train, held_out, device, slots }
    }
}

impl Trainer for ShardTrainer {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        let architecture = architecture(job)?;
        let config = config(&job.plan, job.seed);
        let trained = self
            .slots
            .with(|| train::train(&architecture, model, examples(&self.train), &config, &self.device))
            .map_err(TrainerError::failed)?;
        let values = model.values().iter().zip(&trained.delta).map(|(start, delta)| start + delta).collect();
        let parameters = Parameters::new(Arc::clone(model.layout()), values).map_err(TrainerError::failed)?;
        let loss = MetricValue { value: trained.mean_loss, count: trained.examples };
        Ok(Trained { parameters, examples: trained.examples, metrics: vec![("train_loss".to_owned(), loss)] })
    }

    fn evaluate(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        let architecture = architecture(job)?;
        if self.held_out.is_empty() {
            return Ok(Vec::new());
        }
        let found = self
            .slots
            .with(|| train::evaluate(&architecture, model, examples(&self.held_out), &self.device))
            .map_err(TrainerError::failed)?;
        let metric = |value| MetricValue { value, count: found.examples };
        Ok(vec![("loss".to_owned(), metric(found.loss)), ("accuracy".to_owned(), metric(found.accuracy))])
    }

    fn examples(&self) -> u64 {
        self.train.len() as u64
    }
}

fn architecture(job: &TrainingJob) -> Result<Architecture, TrainerError> {
    let value = job.architecture.clone().ok_or_else(|| TrainerError::refused("the task names no architecture"))?;
    serde_json::from_value(value).map_err(TrainerError::refused)
}

/// A task's plan in the trainer's numbers.
#[expect(clippy::cast_possible_truncation, reason = "the trainer's numbers are f32")]
pub(crate) fn config(plan: &TrainingPlan, seed: u64) -> SgdConfig {
    SgdConfig {
        epochs: if plan.steps.is_some() { None } else { Some(plan.epochs) },
        steps: plan.steps,
        batch_size: plan.batch_size,
        learning_rate: plan.learning_rate as f32,
        momentum: plan.momentum as f32,
        weight_decay: plan.weight_decay as f32,
        proximal_mu: plan.proximal_mu as f32,
        seed,
    }
}
