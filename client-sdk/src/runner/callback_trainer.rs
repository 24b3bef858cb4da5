//! A trainer that calls the app.

use std::borrow::Cow;
use std::time::Duration;

use learning::{Adapters, MetricValue, Parameters, Table};

use super::jobs::asking::trainer_that_asks;
use super::jobs::constraints::{Capabilities, JobConstraints};
use super::jobs::job::{Answer, Answered, Job, PAUSE_GRACE, no_model, rests};
use crate::trainer::{Constraints, Trained, Trainer, TrainerError, TrainingJob};

/// A trainer for [`Driven`](crate::participant::Driven) that passes each job to a function, which answers it before it
/// returns. A return without an answer abandons the round, unless
/// [`Checkpoints::should_pause`](crate::Checkpoints::should_pause) is set and a checkpoint was saved: then the function
/// is called again and resumes. The trainer does not evaluate models: metrics in an answer count as [`Answer::finish`]
/// describes.
pub struct CallbackTrainer<F> {
    call: F,
    examples: u64,
    capabilities: Capabilities,
}

impl<F: FnMut(Job) + Send> CallbackTrainer<F> {
    /// `examples`: the number of training examples of the device.
    pub fn new(examples: u64, call: F) -> Self {
        Self { call, examples, capabilities: Capabilities::default() }
    }

    /// Declares the function's capabilities beyond training by a plan.
    #[must_use]
    pub fn with_capabilities(self, capabilities: Capabilities) -> Self {
        Self { capabilities, ..self }
    }

    fn ask(
        &mut self,
        parameters: &Parameters,
        job: &TrainingJob,
        constraints: JobConstraints,
    ) -> Result<Answered, TrainerError> {
        let (answer, answered, taken_back) = Answer::to(job);
        (self.call)(Job { parameters: parameters.clone(), training: job.clone(), constraints, answer });
        taken_back.take();
        match answered.try_recv() {
            Ok(answer) => answer,
            Err(_) if rests(job) => Err(TrainerError::Paused),
            Err(_) => Err(TrainerError::failed("the app returned without an answer")),
        }
    }
}

impl<F: FnMut(Job) + Send> Trainer for CallbackTrainer<F> {
    trainer_that_asks!();

    fn examples(&self) -> u64 {
        self.examples
    }
}

#[cfg(test)]
mod tests;
