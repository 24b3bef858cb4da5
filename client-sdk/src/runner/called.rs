//! The trainer that calls the app.

use std::time::Duration;

use learning::{MetricValue, Parameters};

use super::job::{Answer, Job, PAUSE_GRACE, rests};
use crate::trainer::{Trained, Trainer, TrainerError, TrainingJob};

/// A trainer that gives each job to a function, which answers it before it returns: for [`Driven`](crate::participant::Driven). A
/// function that returns without an answer gives the round up, unless [`Checkpoints::should_pause`](crate::Checkpoints::should_pause)
/// and a checkpoint was saved: then it is called again, and goes on. It evaluates nothing: the metrics in an answer count as those of the
/// received model, too, but for those of the training itself (`train_…`).
pub struct Called<F> {
    call: F,
    examples: u64,
}

impl<F: FnMut(Job) + Send> Called<F> {
    /// `examples` is the number of training examples that it has.
    pub fn new(examples: u64, call: F) -> Self {
        Self { call, examples }
    }
}

impl<F: FnMut(Job) + Send> Trainer for Called<F> {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        let (answer, answered, taken_back) = Answer::to(job);
        (self.call)(Job { parameters: model.clone(), training: job.clone(), answer });
        taken_back.take();
        match answered.try_recv() {
            Ok(answer) => answer,
            Err(_) if rests(job) => Err(TrainerError::Paused),
            Err(_) => Err(TrainerError::failed("the app returned without an answer")),
        }
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(Vec::new())
    }

    fn examples(&self) -> u64 {
        self.examples
    }

    fn pause_grace(&self) -> Duration {
        PAUSE_GRACE
    }
}
