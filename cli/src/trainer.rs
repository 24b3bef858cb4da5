//! The SDK's trainer in the demo, where many participants share a machine: [`Slots`] bounds how many train at once.
//! Waiting for a slot cannot change a result, since each training is a function of its inputs.

use std::borrow::Cow;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use client_sdk::Constraints;
use client_sdk::learning::{Adapters, MetricValue, Parameters, Table};
use client_sdk::{Dataset, ModelTrainer, Trained, Trainer, TrainerError, TrainingJob};

/// Number of processors that this process may use; 1 if unknown.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Maximum number of concurrent trainings.
pub(crate) struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Slots {
    /// This number of slots, at least one.
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

/// Returns the slot, also after a panic.
struct Slot<'a>(&'a Slots);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// The SDK's trainer, waiting for a slot whenever it has work.
pub(crate) struct SlottedTrainer {
    pub(crate) trainer: ModelTrainer,
    pub(crate) slots: Arc<Slots>,
}

impl Trainer for SlottedTrainer {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        self.slots.with(|| self.trainer.train(model, job))
    }

    fn train_within(
        &mut self,
        model: &Parameters,
        job: &TrainingJob,
        constraints: Constraints<'_>,
    ) -> Result<Trained, TrainerError> {
        self.slots.with(|| self.trainer.train_within(model, job, constraints))
    }

    fn train_adapters(
        &mut self,
        base: &Parameters,
        start: &Parameters,
        job: &TrainingJob,
        adapters: &Adapters,
    ) -> Result<Trained, TrainerError> {
        self.slots.with(|| self.trainer.train_adapters(base, start, job, adapters))
    }

    fn base_model(&mut self, job: &TrainingJob) -> Result<Parameters, TrainerError> {
        self.trainer.base_model(job)
    }

    fn evaluate(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        self.slots.with(|| self.trainer.evaluate(model, job))
    }

    fn table(&mut self, job: &TrainingJob) -> Result<Cow<'_, Table>, TrainerError> {
        self.trainer.table(job)
    }

    fn predictions(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Table, TrainerError> {
        self.slots.with(|| self.trainer.predictions(model, job))
    }

    fn examples(&self) -> u64 {
        self.trainer.examples()
    }
}

/// A shard in the trainer's form.
pub(crate) fn owned(shard: datasets::Dataset) -> Dataset {
    match shard {
        datasets::Dataset::Labelled(data) => {
            Dataset::Labelled { features: data.features, labels: data.labels, width: data.width }
        }
        datasets::Dataset::Text(data) => {
            Dataset::Text { inputs: data.inputs, targets: data.targets, length: data.length }
        }
    }
}
