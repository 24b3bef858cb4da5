//! The trainer of a region. It waits for a regional task instead of training.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::clock::{Clock as _, SystemClock};
use client_sdk::{MetricValue, Parameters, Trained, Trainer, TrainerError, TrainingJob};
use learning::checkpoint;
use tokio::runtime::Handle;
use wire::inspect::{MetricView, RegionFigures};
use wire::{Digest, Timestamp};

use super::answer::Answer;
use super::regional_tasks::{RegionalRound, RegionalTasks};
use super::spec::{check_layout, with_model};
use crate::failure::Failure;

/// Time between two looks at whether the upper coordinator still waits.
const LOOK: Duration = Duration::from_millis(200);

/// Trains by a regional task.
pub(super) struct RegionTrainer {
    tasks: Arc<RegionalTasks>,
    runtime: Handle,
    clock: SystemClock,
    /// Time between the answer and the upper round's deadline.
    reserve: Duration,
    /// Number of examples of the last answer.
    examples: u64,
    /// Digest of the record behind the last answer, until it is taken.
    below: Option<Digest>,
}

/// Why a region does not wait for its task's end.
enum Interrupt {
    /// The upper round is over, or this process stops.
    Cancelled,
    /// The upper round's deadline is near.
    Deadline,
}

impl RegionTrainer {
    pub(super) fn new(tasks: Arc<RegionalTasks>, runtime: Handle, reserve: Duration, examples: u64) -> Self {
        Self { tasks, runtime, clock: SystemClock::new(), reserve, examples, below: None }
    }

    async fn answer(&self, model: &Parameters, job: &TrainingJob) -> Result<Answer, TrainerError> {
        let spec = with_model(self.tasks.spec(), model, job);
        check_layout(&spec, model.layout()).map_err(TrainerError::refused)?;
        let file = checkpoint::write(model).map_err(TrainerError::failed)?;
        let round = self.tasks.round(spec, file, job);
        let interrupt = tokio::select! {
            biased;
            interrupt = self.interrupted(job) => interrupt,
            answer = self.tasks.run(&round, model.layout()) => return answer.map_err(|failure| failed(&failure)),
        };
        match interrupt {
            // The regional task runs on: after a restart of this process, it is found.
            Interrupt::Cancelled => Err(TrainerError::failed("the upper round does not wait any more")),
            Interrupt::Deadline => self.cut(&round, model).await,
        }
    }

    /// The answer with the rounds that were completed by now.
    async fn cut(&self, round: &RegionalRound, model: &Parameters) -> Result<Answer, TrainerError> {
        let answer = tokio::time::timeout(self.reserve, self.tasks.cut(round, model.layout())).await;
        let late =
            |_| TrainerError::failed("the regional coordinator did not answer before the upper round's deadline");
        answer.map_err(late)?.map_err(|failure| failed(&failure))
    }

    async fn interrupted(&self, job: &TrainingJob) -> Interrupt {
        let is_near = |deadline: Timestamp| self.clock.now().wall.plus(self.reserve) >= deadline;
        loop {
            if job.cancel.is_cancelled() {
                return Interrupt::Cancelled;
            }
            if job.deadline.is_some_and(is_near) {
                return Interrupt::Deadline;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn failed(failure: &Failure) -> TrainerError {
    let errors = failure.more.errors.iter().map(|error| format!("; {}: {}", error.field, error.detail));
    TrainerError::failed(format!("{}{}", failure.detail, errors.collect::<String>()))
}

impl Trainer for RegionTrainer {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        let answer = self.runtime.block_on(self.answer(model, job))?;
        let Answer { parameters, figures: RegionFigures { examples, metrics, .. }, below } = answer;
        (self.examples, self.below) = (examples, below);
        let metric =
            |(name, metric): (String, MetricView)| (name, MetricValue { value: metric.value, count: metric.count });
        let metrics = metrics.into_iter().map(metric).collect();
        Ok(Trained { parameters, examples, metrics })
    }

    /// Returns an empty list: the first regional round measures the received model.
    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(Vec::new())
    }

    fn examples(&self) -> u64 {
        self.examples
    }

    fn measures_as_it_trains(&self) -> bool {
        true
    }

    fn record_below(&mut self) -> Option<Digest> {
        self.below.take()
    }
}
