//! A made-up participant: it moves one coordinate of the model, or none.

use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::{Trained, Trainer, TrainerError, TrainingJob};

/// Name of the task in which canaries move.
pub(super) const CANARIES: &str = "audit-canaries";
/// How far a canary moves its coordinate, over the clip.
pub(super) const TIMES: f64 = 32.0;

/// The coordinate of a canary: they are spread over the model.
pub(super) fn place(index: usize, participants: u32, parameters: usize) -> usize {
    index * parameters / participants as usize
}

/// Adds `by` to one value of the model in the task of canaries, and nothing in others.
pub(super) struct Canary {
    pub(super) place: usize,
    pub(super) by: f32,
}

impl Trainer for Canary {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        let mut parameters = model.clone();
        if job.task == CANARIES
            && let Some(value) = parameters.values_mut().get_mut(self.place)
        {
            *value += self.by;
        }
        Ok(Trained { parameters, examples: 1, metrics: Vec::new() })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(Vec::new())
    }

    fn examples(&self) -> u64 {
        1
    }
}
