//! The built-in trainer: follows the task's architecture and training plan with [`crate::train`] on the app's examples.
//!
//! Reports `loss` and `accuracy` of the received model on the held-out examples, `train_loss`, and `train_reach`. A model
//! that predicts numbers has no `accuracy`.
//!
//! If the task or the app sets a budget, training stops when it is used up and returns the work done so far. Time comes
//! from a [`Clock`], by default the system's.

mod dataset;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use learning::{Adapters, MetricValue, Parameters, Table};
use task_spec::Budget;
use zeroize::Zeroizing;

use crate::clock::{Clock, SystemClock};
use crate::models::Architecture;
use crate::train::{self, Device, Next, Sgd, Steering, TrainError};
use crate::trainer::{Constraints, REACH, Trained, Trainer, TrainerError, TrainingJob};

pub use self::dataset::{Dataset, Elements, Targets};

/// Trains the SDK's own models ([`crate::models`]) on one core or one GPU.
pub struct ModelTrainer {
    training: Arc<Dataset>,
    held_out: Arc<Dataset>,
    device: Device,
    budget: Budget,
    clock: Arc<dyn Clock>,
    base: Option<Arc<Parameters>>,
}

impl ModelTrainer {
    /// `held_out` must not overlap `training`; if it is empty, the received model is not evaluated.
    #[must_use]
    pub fn new(training: impl Into<Arc<Dataset>>, held_out: impl Into<Arc<Dataset>>, device: Device) -> Self {
        let (budget, clock) = (Budget::default(), Arc::new(SystemClock::new()));
        Self { training: training.into(), held_out: held_out.into(), device, budget, clock, base: None }
    }

    /// Stops after this many steps or this much time per round, in addition to the task's budget: for slow devices.
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

    /// Keeps to the round's budget, and leaves checkpoints.
    fn steering<'a>(&'a self, job: &'a TrainingJob) -> InRound<'a> {
        let Budget { steps, time_ms } = job.plan.budget.unwrap_or_default().tighter(self.budget);
        InRound {
            job,
            clock: &*self.clock,
            most_steps: steps.map_or(u64::MAX, u64::from),
            most_time: time_ms.map(Duration::from_millis),
            began: self.clock.now().elapsed,
            before: Duration::ZERO,
        }
    }
}

/// Steers a training by the job's budget, cancellation and checkpoints.
struct InRound<'a> {
    job: &'a TrainingJob,
    clock: &'a dyn Clock,
    most_steps: u64,
    most_time: Option<Duration>,
    began: Duration,
    /// Time that earlier runs of the same training took.
    before: Duration,
}

impl InRound<'_> {
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
}

impl Trainer for ModelTrainer {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        self.train_within(model, job, Constraints::default())
    }

    fn train_within(
        &mut self,
        model: &Parameters,
        job: &TrainingJob,
        constraints: Constraints<'_>,
    ) -> Result<Trained, TrainerError> {
        let architecture = architecture(job)?;
        let sgd = Sgd { plan: &job.plan, seed: job.seed };
        let mut steering = self.steering(job);
        let trained = self.training.with_examples(|examples| {
            train::train_steered(&architecture, model, examples, sgd, &self.device, constraints, &mut steering)
        });
        let trained = trained.map_err(judge)?;
        moved(model, &trained, job)
    }

    fn train_adapters(
        &mut self,
        base: &Parameters,
        start: &Parameters,
        job: &TrainingJob,
        adapters: &Adapters,
    ) -> Result<Trained, TrainerError> {
        let architecture = architecture(job)?;
        let sgd = Sgd { plan: &job.plan, seed: job.seed };
        let adapted = train::AdaptedBase { base, start, adapters };
        let mut steering = self.steering(job);
        let trained = self.training.with_examples(|examples| {
            train::train_adapters_steered(&architecture, adapted, examples, sgd, &self.device, &mut steering)
        });
        let trained = trained.map_err(judge)?;
        moved(start, &trained, job)
    }

    fn base_model(&mut self, job: &TrainingJob) -> Result<Parameters, TrainerError> {
        let base = self.base.as_deref().cloned();
        base.ok_or_else(|| {
            let problem = "trains adapters of a model that apps bring; give it to `ModelTrainer::with_base`";
            TrainerError::refused(format!("task {:?} {problem}", job.task))
        })
    }

    fn evaluate(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        if self.held_out.is_empty() {
            return Ok(Vec::new());
        }
        let architecture = architecture(job)?;
        let evaluation =
            self.held_out.with_examples(|examples| train::evaluate(&architecture, model, examples, &self.device));
        let evaluation = evaluation.map_err(judge)?;
        let metric = |name: &str, value| (name.to_owned(), MetricValue { value, count: evaluation.examples });
        let mut metrics = vec![metric("loss", evaluation.loss)];
        metrics.extend(architecture.has_accuracy().then(|| metric("accuracy", evaluation.accuracy)));
        Ok(metrics)
    }

    /// The training examples as a table with classes as targets.
    fn table(&mut self, job: &TrainingJob) -> Result<Cow<'_, Table>, TrainerError> {
        let Dataset::Labelled { features, labels, width } = &*self.training else {
            let problem =
                format!("task {:?} is an analysis of rows, and this participant has other examples", job.task);
            return Err(TrainerError::refused(problem));
        };
        let values = features.iter().map(|&value| f64::from(value)).collect();
        let targets = labels.iter().map(|&label| f64::from(label)).collect();
        let table = Table::new(*width, values).and_then(|table| table.with_targets(targets));
        table.map(Cow::Owned).map_err(TrainerError::failed)
    }

    fn examples(&self) -> u64 {
        self.training.count() as u64
    }

    fn pauses(&self) -> bool {
        true
    }
}

/// The trained parameters with their metrics; `None` if the job was cancelled.
fn moved(start: &Parameters, trained: &train::Trained, job: &TrainingJob) -> Result<Trained, TrainerError> {
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

fn architecture(job: &TrainingJob) -> Result<Architecture, TrainerError> {
    let architecture = job
        .architecture
        .clone()
        .ok_or_else(|| TrainerError::refused("the task does not say which model it is about (`model.architecture`)"))?;
    serde_json::from_value(architecture).map_err(TrainerError::refused)
}

/// Another model or invalid settings are the task's fault; everything else is ours.
fn judge(error: TrainError) -> TrainerError {
    match error {
        TrainError::Paused => TrainerError::Paused,
        TrainError::Architecture(_) | TrainError::Config(_) | TrainError::OtherModel { .. } => {
            TrainerError::refused(error)
        }
        _ => TrainerError::failed(error),
    }
}

#[cfg(test)]
mod tests {
    use task_spec::TrainingPlan;

    use super::*;
    use crate::checkpoints::Checkpoints;
    use crate::trainer::{Cancel, Purpose};

    fn job(architecture: Option<&str>) -> TrainingJob {
        TrainingJob {
            task: "t".into(),
            round: 1,
            purpose: Purpose::Shared,
            plan: TrainingPlan { epochs: 20, batch_size: 4, learning_rate: 0.5, ..TrainingPlan::default() },
            table: None,
            analytics: None,
            architecture: architecture.map(|json| serde_json::from_str(json).unwrap()),
            metrics: vec![],
            seed: 1,
            deadline: None,
            cancel: Cancel::default(),
            checkpoints: Checkpoints::default(),
        }
    }

    fn trainer() -> ModelTrainer {
        // Two classes, separated by the sign of the first feature.
        let rows = |range: std::ops::Range<i16>| Dataset::Labelled {
            features: range.clone().flat_map(|i| [f32::from(i - 8) / 4.0 + 0.01, 1.0]).collect(),
            labels: range.map(|i| u32::from(i >= 8)).collect(),
            width: 2,
        };
        ModelTrainer::new(rows(0..16), rows(4..12), Device::Cpu)
    }

    #[test]
    fn follows_the_plan_of_the_task() {
        let job = job(Some(r#"{"kind":"linear","inputs":2,"classes":2}"#));
        let architecture = architecture(&job).unwrap();
        let first = architecture.initial(1).unwrap();
        let mut trainer = trainer();
        let trained = trainer.train(&first, &job).unwrap();
        assert_eq!(trained.examples, 16);
        assert_eq!(trained, trainer.train(&first, &job).unwrap());
        let accuracy = |metrics: Vec<(String, MetricValue)>| metrics[1].1;
        let after = accuracy(trainer.evaluate(&trained.parameters, &job).unwrap());
        assert_eq!((after.value, after.count), (1.0, 8));
    }

    /// Advances by a second each time it is read.
    struct Ticking(std::sync::atomic::AtomicU64);

    impl Clock for Ticking {
        fn now(&self) -> crate::clock::Now {
            let seconds = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            crate::clock::Now { elapsed: Duration::from_secs(seconds), wall: wire::Timestamp(0) }
        }
    }

    #[test]
    fn a_budget_ends_training_and_what_was_done_counts() {
        let good = job(Some(r#"{"kind":"linear","inputs":2,"classes":2}"#));
        let first = architecture(&good).unwrap().initial(1).unwrap();
        let trained = |trainer: ModelTrainer, budget: Option<Budget>, steps: Option<u32>| {
            let mut trainer = trainer;
            let plan = TrainingPlan { budget, steps, ..good.plan.clone() };
            trainer.train(&first, &TrainingJob { plan, ..good.clone() }).unwrap()
        };
        let steps = |trained: &Trained| trained.metrics[1].1.count;
        // 20 epochs of 16 examples in batches of 4.
        assert_eq!(steps(&trained(trainer(), None, None)), 80);
        let budget = |steps, time_ms| Budget { steps, time_ms };
        let five = trained(trainer(), Some(budget(Some(5), None)), None);
        assert_eq!(steps(&five), 5);
        assert_eq!(five, trained(trainer(), None, Some(5)), "the work of five steps");
        assert_eq!(five.metrics[1], (REACH.to_owned(), MetricValue { value: 2.5, count: 5 }));
        assert_eq!(five, trained(trainer().with_budget(budget(Some(5), None)), Some(budget(Some(9), None)), None));
        let ticking = || trainer().with_clock(Arc::new(Ticking(0.into())));
        assert_eq!(five, trained(ticking(), Some(budget(None, Some(5_000))), None), "a second a step");
        assert_eq!(steps(&trained(ticking(), Some(budget(None, Some(1))), None)), 1, "one step at least");
    }

    #[test]
    fn whoever_is_told_to_stop_yields_nothing() {
        let good = job(Some(r#"{"kind":"linear","inputs":2,"classes":2}"#));
        let first = architecture(&good).unwrap().initial(1).unwrap();
        good.cancel.cancel();
        assert!(matches!(trainer().train(&first, &good), Err(TrainerError::Failed(_))));
    }

    #[test]
    fn what_the_task_gets_wrong_is_refused_not_failed() {
        let mut trainer = trainer();
        let good = job(Some(r#"{"kind":"linear","inputs":2,"classes":2}"#));
        let first = architecture(&good).unwrap().initial(1).unwrap();
        for bad in
            [job(None), job(Some(r#"{"kind":"resnet"}"#)), job(Some(r#"{"kind":"linear","inputs":3,"classes":2}"#))]
        {
            assert!(matches!(trainer.train(&first, &bad), Err(TrainerError::Refused(_))));
        }
        let diverging =
            TrainingJob { plan: TrainingPlan { learning_rate: 3e38, momentum: 0.9, ..good.plan.clone() }, ..good };
        assert!(matches!(trainer.train(&first, &diverging), Err(TrainerError::Failed(_))));
    }
}

#[cfg(test)]
#[path = "model_trainer_resume_tests.rs"]
mod resume_tests;
