//! A training of the SDK's own trainers within a job: budget, cancellation, checkpoints and result.

use std::sync::Arc;
use std::time::Duration;

use learning::{MetricValue, Parameters};
use task_spec::Budget;
use zeroize::Zeroizing;

use crate::clock::Clock;
use crate::train::{self, Next, Steering, TrainError};
use crate::trainer::{Interrupt, REACH, Trained, TrainerError, TrainingJob};

/// Steers a training by the job's budget, cancellation and checkpoints.
pub(crate) struct InRound<'a> {
    job: &'a TrainingJob,
    clock: &'a dyn Clock,
    most_steps: u64,
    most_time: Option<Duration>,
    began: Duration,
    /// Time that earlier runs of the same training took.
    before: Duration,
    interrupt: Interrupt,
    memory: u64,
}

impl<'a> InRound<'a> {
    /// Keeps to the job's budget and to the app's.
    pub(crate) fn new(job: &'a TrainingJob, app: Budget, clock: &'a dyn Clock) -> Self {
        let Budget { steps, time_ms } = job.plan.budget.unwrap_or_default().tighter(app);
        Self {
            job,
            clock,
            most_steps: steps.map_or(u64::MAX, u64::from),
            most_time: time_ms.map(Duration::from_millis),
            began: clock.now().elapsed,
            before: Duration::ZERO,
            interrupt: Interrupt::new(&job.cancel, &job.checkpoints),
            memory: graph::MAX_MEMORY,
        }
    }

    /// Limits the memory of a training step, in bytes.
    pub(crate) fn with_memory(self, memory: u64) -> Self {
        Self { memory, ..self }
    }

    fn spent(&self) -> Duration {
        self.before.saturating_add(self.clock.now().elapsed.saturating_sub(self.began))
    }
}

impl Steering for InRound<'_> {
    /// In front of the state is the time spent, in milliseconds.
    fn resume(&mut self) -> Option<Zeroizing<Vec<u8>>> {
        let mut state = self.job.checkpoints.load()?;
        let spent = u64::from_le_bytes(*state.first_chunk()?);
        self.before = Duration::from_millis(spent);
        state.drain(..8);
        Some(state)
    }

    fn next(&mut self, steps: u64) -> Next {
        let has_time = self.most_time.is_none_or(|most| self.spent() < most);
        if steps >= self.most_steps || !has_time || self.job.cancel.is_cancelled() {
            Next::Enough
        } else if self.job.checkpoints.should_pause() {
            Next::Pause
        } else if self.job.checkpoints.is_due() {
            Next::Save
        } else {
            Next::GoOn
        }
    }

    fn save(&mut self, state: &[u8]) -> bool {
        let spent = u64::try_from(self.spent().as_millis()).unwrap_or(u64::MAX);
        let state = Zeroizing::new([&spent.to_le_bytes(), state].concat());
        self.job.checkpoints.save(&state).is_ok()
    }

    fn memory(&self) -> u64 {
        self.memory
    }

    fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }
}

/// The trained parameters with their metrics; `None` if the job was cancelled.
pub(crate) fn moved(start: &Parameters, trained: &train::Trained, job: &TrainingJob) -> Result<Trained, TrainerError> {
    if job.cancel.is_cancelled() {
        return Err(TrainerError::failed("nobody waits for the result any more"));
    }
    let values = start.values().iter().zip(&trained.delta).map(|(value, delta)| value + delta).collect();
    let parameters = Parameters::new(Arc::clone(start.layout()), values).map_err(TrainerError::failed)?;
    let train_loss = MetricValue { value: trained.mean_loss, count: trained.examples };
    let reach = MetricValue { value: trained.reach, count: trained.steps };
    let metrics = vec![("train_loss".to_owned(), train_loss), (REACH.to_owned(), reach)];
    Ok(Trained { parameters, examples: trained.examples, metrics })
}

/// Another model or invalid settings are the task's fault; everything else is ours.
pub(crate) fn judge(error: TrainError) -> TrainerError {
    match error {
        TrainError::Paused => TrainerError::Paused,
        TrainError::Architecture(_)
        | TrainError::Config(_)
        | TrainError::OtherModel { .. }
        | TrainError::Graph(_)
        | TrainError::Memory { .. }
        | TrainError::BatchMemory { .. } => TrainerError::refused(error),
        #[cfg(feature = "candle")]
        TrainError::OtherTensors(_)
        | TrainError::NoGradient { .. }
        | TrainError::WrongGradient { .. }
        | TrainError::RandomLoss { .. }
        | TrainError::LossShape(_) => TrainerError::refused(error),
        _ => TrainerError::failed(error),
    }
}
