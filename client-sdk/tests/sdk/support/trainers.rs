//! Trainers whose updates are known beforehand.

use std::sync::{Arc, Mutex};

use client_sdk::learning::{MetricValue, Parameters, Update};
use client_sdk::{Trained, Trainer, TrainerError, TrainingJob};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;

use super::words::codec;

/// The gradient of a weight of this value is 0, like that of a dead unit.
pub(crate) const DEAD: f32 = -1e6;

/// Moves every weight except [`DEAD`] ones by one, up or down, to avoid rounding.
#[derive(Clone)]
pub(crate) struct Exact {
    device: usize,
    pub(crate) seen: Arc<Mutex<Vec<Vec<f32>>>>,
}

impl Exact {
    pub(crate) fn new(device: usize) -> Self {
        Self { device, seen: Arc::default() }
    }

    fn delta(device: usize, length: usize) -> Vec<f32> {
        (0..length).map(|index| if (index + device).is_multiple_of(3) { -1.0 } else { 1.0 }).collect()
    }

    fn weight(device: usize) -> u64 {
        device as u64 + 1
    }

    /// What a device sends in any round, before it is masked.
    pub(crate) fn words(device: usize, personal: bool) -> Vec<u32> {
        let codec = codec(personal);
        let delta = Self::delta(device, codec.params().parameters);
        let metrics = vec![MetricValue { value: 1.5, count: 3 }, MetricValue { value: 0.5, count: 3 }];
        let update = Update { delta, examples: Self::weight(device), metrics };
        codec.encode(&update, &mut ChaCha20Rng::from_seed([9; 32])).unwrap().words
    }
}

impl Trainer for Exact {
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        self.seen.lock().unwrap().push(model.values().to_vec());
        let mut parameters = model.clone();
        let delta = Self::delta(self.device, model.values().len());
        let learns = |value: &f32| *value != DEAD;
        let values = parameters.values_mut().iter_mut().zip(delta).filter(|(value, _)| learns(value));
        values.for_each(|(value, delta)| *value += delta);
        Ok(Trained {
            parameters,
            examples: Self::weight(self.device),
            metrics: vec![("train_loss".into(), MetricValue { value: 0.5, count: 3 })],
        })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(vec![("loss".into(), MetricValue { value: 1.5, count: 3 })])
    }

    fn examples(&self) -> u64 {
        Self::weight(self.device)
    }
}

/// Adds a third to every weight, and remembers what it was given.
#[derive(Clone, Default)]
pub(crate) struct Nudge {
    pub(crate) seen: Arc<Mutex<Vec<Vec<f32>>>>,
    /// Learning rates of the received jobs, in order.
    pub(crate) rates: Arc<Mutex<Vec<f64>>>,
}

impl Trainer for Nudge {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        self.seen.lock().unwrap().push(model.values().to_vec());
        self.rates.lock().unwrap().push(job.plan.learning_rate);
        let mut parameters = model.clone();
        // Not a multiple of any quantum: rounding has something to decide.
        parameters.values_mut().iter_mut().for_each(|value| *value += 1.0 / 3.0);
        Ok(Trained {
            parameters,
            examples: 7,
            metrics: vec![("train_loss".into(), MetricValue { value: 0.5, count: 7 })],
        })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(vec![("loss".into(), MetricValue { value: 1.5, count: 3 })])
    }

    fn examples(&self) -> u64 {
        7
    }
}

/// Trains by a function.
pub(crate) struct By<F>(pub(crate) F);

impl<F: FnMut(&Parameters) -> Result<Trained, TrainerError> + Send> Trainer for By<F> {
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        (self.0)(model)
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(vec![("loss".into(), MetricValue { value: 1.0, count: 1 })])
    }

    fn examples(&self) -> u64 {
        1
    }
}
