//! The built-in trainer: follows the task's architecture and training plan with [`crate::train`] on the app's examples.
//!
//! Reports `loss` and `accuracy` of the received model on the held-out examples (of a graph the measures that fit its
//! loss), `train_loss`, and `train_reach`.
//!
//! If the task or the app sets a budget, training stops when it is used up and returns the work done so far. Time comes
//! from a [`Clock`], by default the system's.

mod dataset;
pub(crate) mod in_round;

use std::borrow::Cow;
use std::sync::Arc;

use learning::analytics::EvaluatedExamples;
use learning::{Adapters, AnalyticsSpec, MetricValue, Parameters, Table};
use task_spec::Budget;

use self::in_round::{InRound, judge, moved};
use crate::clock::{Clock, SystemClock};
use crate::models::Architecture;
use crate::train::{self, Device, Sgd, TrainError};
use crate::trainer::{Constraints, Trained, Trainer, TrainerError, TrainingJob};

pub use self::dataset::{Dataset, Elements, NamedExamples, Targets};

/// Trains the SDK's own models ([`crate::models`]) on one core or one GPU.
pub struct ModelTrainer {
    training: Arc<Dataset>,
    held_out: Arc<Dataset>,
    device: Device,
    budget: Budget,
    clock: Arc<dyn Clock>,
    base: Option<Arc<Parameters>>,
    memory: u64,
}

impl ModelTrainer {
    /// `held_out` must not overlap `training`; if it is empty, the received model is not evaluated.
    #[must_use]
    pub fn new(training: impl Into<Arc<Dataset>>, held_out: impl Into<Arc<Dataset>>, device: Device) -> Self {
        let (budget, clock) = (Budget::default(), Arc::new(SystemClock::new()));
        Self {
            training: training.into(),
            held_out: held_out.into(),
            device,
            budget,
            clock,
            base: None,
            memory: graph::MAX_MEMORY,
        }
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

    /// Limits the memory of a training step of a graph, in bytes; by default 4 GiB. A step is computed in smaller chunks to
    /// keep to it. A task of which one example exceeds the limit is refused before anything is allocated.
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> Self {
        Self { memory: bytes, ..self }
    }

    /// Provides the base model that tasks with shared adapters name by digest.
    #[must_use]
    pub fn with_base(self, base: impl Into<Arc<Parameters>>) -> Self {
        Self { base: Some(base.into()), ..self }
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
        let mut steering = InRound::new(job, self.budget, &*self.clock).with_memory(self.memory);
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
        let mut steering = InRound::new(job, self.budget, &*self.clock).with_memory(self.memory);
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
        let accuracy = architecture.has_accuracy().then_some(("accuracy", evaluation.accuracy));
        let named = std::iter::once(("loss", evaluation.loss)).chain(accuracy).chain(evaluation.measures.named());
        let metric = |(name, value): (&str, f64)| (name.to_owned(), MetricValue { value, count: evaluation.examples });
        Ok(named.map(metric).collect())
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

    /// Of the held-out examples, and unless the task evaluates these alone, of those to train on.
    fn predictions(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Table, TrainerError> {
        let architecture = architecture(job)?;
        let analysis = job.analytics.as_ref().map(AnalyticsSpec::read).transpose().map_err(TrainerError::refused)?;
        let Some(AnalyticsSpec::Evaluation(spec)) = &analysis else {
            return Err(TrainerError::failed("the task evaluates no model"));
        };
        let parts = match spec.examples {
            EvaluatedExamples::All => vec![&self.training, &self.held_out],
            EvaluatedExamples::HeldOut => vec![&self.held_out],
        };
        let width = analysis.as_ref().map_or(0, AnalyticsSpec::width);
        let mut chosen = evenly(parts.iter().map(|part| part.count()).sum(), spec.max_rows as usize).peekable();
        let (mut values, mut targets, mut start) = (Vec::new(), Vec::new(), 0);
        for part in parts {
            let end = start + part.count();
            let own: Vec<usize> = std::iter::from_fn(|| chosen.next_if(|at| *at < end)).map(|at| at - start).collect();
            start = end;
            if own.is_empty() {
                continue;
            }
            let found = part.with_examples(|examples| {
                train::predictions(&architecture, model, &examples, &own, width, &self.device)
            });
            let found = found.map_err(|error| match error {
                TrainError::Inputs { .. } => TrainerError::refused(error),
                other => judge(other),
            })?;
            values.extend(found.values);
            targets.extend(found.targets);
        }
        if targets.is_empty() {
            return Err(TrainerError::refused("the task evaluates examples of which this device has none"));
        }
        let table = Table::new(width, values).and_then(|table| table.with_targets(targets));
        table.map_err(TrainerError::failed)
    }

    fn examples(&self) -> u64 {
        self.training.count() as u64
    }

    fn pauses(&self) -> bool {
        true
    }
}

/// At most `most` of so many positions, evenly spaced.
fn evenly(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let chosen = count.min(most);
    (0..chosen).map(move |at| usize::try_from(at as u128 * count as u128 / chosen as u128).unwrap_or_default())
}

/// The ready model or graph that the job names.
pub(crate) fn architecture(job: &TrainingJob) -> Result<Architecture, TrainerError> {
    let architecture = job
        .architecture
        .clone()
        .ok_or_else(|| TrainerError::refused("the task does not say which model it is about (`model.architecture`)"))?;
    serde_json::from_value(architecture).map_err(TrainerError::refused)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use task_spec::TrainingPlan;

    use super::*;
    use crate::checkpoints::Checkpoints;
    use crate::trainer::{Cancel, Purpose, REACH};

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
    fn predictions_are_probabilities_of_all_examples() {
        let good = job(Some(r#"{"kind":"linear","inputs":2,"classes":2}"#));
        let model = architecture(&good).unwrap().initial(1).unwrap();
        let evaluated = |examples: &str, most: u32| {
            let target = r#"{"type":"class","classes":2}"#;
            let analysis =
                format!(r#"{{"kind":"evaluation","max_rows":{most},"examples":"{examples}","target":{target}}}"#);
            let analytics = Some(serde_json::from_str(&analysis).unwrap());
            trainer().predictions(&model, &TrainingJob { analytics, ..good.clone() }).unwrap()
        };
        let (all, held_out) = (evaluated("all", 100), evaluated("held_out", 100));
        let six = evaluated("all", 6);
        assert_eq!(six.targets(), [0, 4, 8, 12, 16, 20].map(|at| all.targets()[at]));
        assert_eq!(six.row(5), all.row(20));
        assert_eq!((all.rows(), held_out.rows(), all.width()), (24, 8, 2));
        assert_eq!(held_out.targets(), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
        let right = (0..24).filter(|&row| (all.row(row)[1] > 0.5) == (all.targets()[row] > 0.5)).count();
        let accuracy = |data: &Dataset| {
            let model = (&architecture(&good).unwrap(), &model);
            data.with_examples(|rows| train::evaluate(model.0, model.1, rows, &Device::Cpu)).unwrap().accuracy
        };
        let expected = 16.0 * accuracy(&trainer().training) + 8.0 * accuracy(&trainer().held_out);
        assert!((right as f64 - expected).abs() < 1e-9, "{right} for {expected}");
        assert!((0..24).all(|row| (all.row(row).iter().sum::<f64>() - 1.0).abs() < 1e-12));
        assert!(trainer().predictions(&model, &good).is_err(), "this task evaluates nothing");
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
mod resume_tests;
