//! Follows the rounds as an operator would, evaluates the published models and collects statistics.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client_sdk::Dataset;
use client_sdk::models::Architecture;
use client_sdk::train::{self, Device as Processor, Evaluation};
use federation::time::Timestamp;
use learning::Layout;
use task_spec::{TaskSpec, TrainingPlan};
use wire::TaskStatus;
use wire::inspect::{PrivacyReport, RoundView, TaskView};
use wire::{RoundState, TaskId, route};

use crate::clock::Moment;
use crate::in_process::Network;
use crate::regional::Answer;
use crate::report::{Participation, Point, PrivacySpending, RegionReport, Report, RoundReport, WaitingSamples};
use crate::training::{TrainingHandle, TrainingPool};
use crate::{Experiment, Progress, SimulationError};

/// Statistics of the rounds.
pub(crate) struct Rounds {
    task: TaskId,
    count: u32,
    population: u32,
    plan: TrainingPlan,
    architecture: Architecture,
    layout: Arc<Layout>,
    /// `None` in a region, which does not evaluate.
    test: Option<Arc<Dataset>>,
    start: Moment,
    evaluate_every: u32,
    until_accuracy: Option<f64>,
    /// The current round, and its last attempt recorded.
    number: u32,
    booked: u32,
    completed: u32,
    failed: u32,
    is_over: bool,
    stopped: Option<String>,
    /// Bytes sent and received by participants, in total and at the end of the last round.
    carried: (u64, u64),
    carried_before: (u64, u64),
    trainings: u64,
    updates: u64,
    vanished: u64,
    /// Accepted updates of open rounds: times of assignment and of the report.
    reports: HashMap<(u32, u32), Vec<(Moment, Moment)>>,
    waiting: WaitingSamples,
    ended: Vec<RoundReport>,
    curve: Vec<Point>,
    reached: Option<Point>,
    /// The model being evaluated: that of the last round in `ended`, or the first of all.
    scoring: Option<Scoring>,
    model: Option<wire::Digest>,
    last_at: Moment,
    /// Spending of a private task, as of the last look.
    privacy: Option<PrivacySpending>,
    is_private: bool,
    regions: Vec<RegionReport>,
}

/// An evaluation in progress, in parallel to the simulation.
struct Scoring {
    round: u32,
    at: Moment,
    bytes: u64,
    job: TrainingHandle<Result<Evaluation, String>>,
}

impl Rounds {
    /// For a task of this specification whose world begins at `start`.
    pub(crate) fn new(
        experiment: &Experiment,
        spec: &TaskSpec,
        task: TaskId,
        start: Moment,
        is_region: bool,
    ) -> Result<Self, SimulationError> {
        let layout = experiment.architecture.layout().map_err(|error| SimulationError::Invalid(error.to_string()))?;
        Ok(Self {
            task,
            count: spec.rounds.count,
            population: experiment.population,
            plan: spec.training.clone(),
            architecture: experiment.architecture.clone(),
            layout: Arc::new(layout),
            test: (!is_region).then(|| experiment.data.test()),
            start,
            evaluate_every: experiment.evaluate_every,
            until_accuracy: experiment.until_accuracy,
            number: 1,
            booked: 0,
            completed: 0,
            failed: 0,
            is_over: false,
            stopped: None,
            carried: (0, 0),
            carried_before: (0, 0),
            trainings: 0,
            updates: 0,
            vanished: 0,
            reports: HashMap::new(),
            waiting: WaitingSamples::default(),
            ended: Vec::new(),
            curve: Vec::new(),
            reached: None,
            scoring: None,
            model: None,
            last_at: start,
            privacy: None,
            is_private: spec.privacy.is_private(),
            regions: region_reports(experiment),
        })
    }

    /// Number of examples that a device processes in a round, given how many it has.
    pub(crate) fn examples_of_a_training(&self, examples: u64) -> u64 {
        match self.plan.steps {
            Some(steps) => u64::from(steps) * u64::from(self.plan.batch_size).min(examples),
            None => u64::from(self.plan.epochs) * examples,
        }
    }

    pub(crate) fn trained(&mut self) {
        self.trainings += 1;
    }

    pub(crate) fn vanished(&mut self) {
        self.vanished += 1;
    }

    /// Records that a participant of this attempt has its receipt.
    pub(crate) fn reported(&mut self, attempt: (u32, u32), assigned: Moment, now: Moment) {
        self.updates += 1;
        self.reports.entry(attempt).or_default().push((assigned, now));
    }

    /// Records the task of a region.
    pub(crate) fn trained_in_region(&mut self, region: u32, task: &Report) {
        if let Some(report) = self.regions.get_mut(region as usize) {
            report.add(task);
        }
    }

    /// The last model of a regional task, and its completed rounds; `None` if there is none.
    pub(crate) async fn answer(&self, network: &Network) -> Result<Option<Answer>, SimulationError> {
        let mut rounds = Vec::new();
        for number in self.ended.iter().filter(|round| round.state == RoundState::Completed).map(|round| round.number) {
            rounds.extend(network.look::<RoundView>(&route::fill(route::ROUND, &[&self.task, &number])).await?);
        }
        let Some(last) = rounds.last().and_then(|round| round.model.as_ref()) else { return Ok(None) };
        let model = network.download(&route::model_parameters(self.task, last.version)).await?;
        Ok(Some(Answer { model, rounds }))
    }

    /// Adds bytes sent and received by participants.
    pub(crate) fn carried(&mut self, up: u64, down: u64) {
        self.carried.0 += up;
        self.carried.1 += down;
    }

    /// Whether the simulation is over.
    pub(crate) fn are_over(&self) -> bool {
        self.is_over
    }

    /// Ends the simulation early.
    pub(crate) fn stop(&mut self, why: String) {
        self.is_over = true;
        self.stopped = Some(why);
    }

    /// Starts the evaluation of the first model.
    pub(crate) async fn begin(&mut self, network: &Network, pool: &TrainingPool) -> Result<(), SimulationError> {
        self.score(network, pool, 0, 0, self.start).await
    }

    /// Records the attempts that ended since the last call.
    pub(crate) async fn look(
        &mut self,
        network: &Network,
        pool: &TrainingPool,
        now: Moment,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), SimulationError> {
        progress(Progress::Running { round: self.number, elapsed: now.elapsed(), updates: self.updates });
        while !self.is_over {
            let path = route::fill(route::ROUND, &[&self.task, &self.number]);
            let Some(view) = network.look::<RoundView>(&path).await? else { break };
            if !view.state.is_terminal() || view.attempt <= self.booked {
                break;
            }
            self.book(network, pool, view, now, progress).await?;
            self.note_spending(network).await?;
        }
        if self.is_private && !self.is_over {
            // Its budget or its participants may end it between two rounds.
            self.check_active(network).await?;
        }
        Ok(())
    }

    /// Reads the privacy spending of a private task.
    async fn note_spending(&mut self, network: &Network) -> Result<(), SimulationError> {
        if !self.is_private {
            return Ok(());
        }
        let path = route::fill(route::TASK_PRIVACY, &[&self.task]);
        if let Some(PrivacyReport { spec, spent, .. }) = network.look::<PrivacyReport>(&path).await? {
            self.privacy = Some(PrivacySpending {
                mechanism: spec.mechanism,
                noise_multiplier: spec.noise_multiplier,
                delta: spec.delta.unwrap_or_default(),
                budget: spec.epsilon,
                epsilon: spent,
            });
        }
        Ok(())
    }

    async fn book(
        &mut self,
        network: &Network,
        pool: &TrainingPool,
        view: RoundView,
        now: Moment,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), SimulationError> {
        // A finished evaluation belongs to the previous round.
        self.settle(progress);
        let (number, attempt, spent, state) = (view.number, view.attempt, view.spent, view.state);
        let model = view.model.clone();
        let ended_at = Moment::of(view.ended_at.unwrap_or(Timestamp(i64::MAX))).min(now);
        for (assigned, reported) in self.reports.remove(&(number, attempt)).unwrap_or_default() {
            self.waiting.add(seconds(ended_at.since(assigned)), seconds(ended_at.since(reported)));
        }
        let round = self.round_report(view, ended_at);
        self.ended.push(round);
        self.last_at = ended_at;
        if state == RoundState::Completed {
            self.completed += 1;
            self.model = model.as_ref().map(|model| model.sha256);
            let is_last = self.completed == self.count;
            let version = model.map(|model| model.version);
            match version.filter(|_| is_last || self.completed.is_multiple_of(self.evaluate_every)) {
                Some(version) => self.score(network, pool, number, version, ended_at).await?,
                None => self.tell_last(progress),
            }
            self.is_over |= is_last;
        } else {
            self.failed += 1;
            self.tell_last(progress);
            self.check_active(network).await?;
        }
        if state == RoundState::Completed || spent {
            self.number += 1;
            self.booked = 0;
        } else {
            self.booked = attempt;
        }
        Ok(())
    }

    fn round_report(&mut self, view: RoundView, ended_at: Moment) -> RoundReport {
        let (up, down) = self.carried;
        let (up_before, down_before) = std::mem::replace(&mut self.carried_before, self.carried);
        let phase = |phase: &wire::inspect::PhaseView| {
            let ended = phase.ended_at.unwrap_or(phase.started_at);
            (phase.state.as_str(), seconds(ended.since(phase.started_at)))
        };
        RoundReport {
            number: view.number,
            attempt: view.attempt,
            state: view.state,
            failure: view.failure,
            ended_at: seconds(ended_at.since(self.start)),
            seconds: view.seconds,
            phases: view.phases.iter().filter(|phase| !phase.state.is_terminal()).map(phase).collect(),
            cohort: view.cohort,
            staleness: view.buffer.as_ref().map(|buffer| buffer.mean_staleness),
            reported: view.reported,
            dropped: view.dropped,
            bytes_up: up - up_before,
            bytes_down: down - down_before,
            epsilon: view.epsilon,
            metrics: view.metrics.into_iter().map(|(name, metric)| (name, metric.value)).collect(),
            accuracy: None,
            loss: None,
        }
    }

    /// A task paused after too many failures opens no further round.
    async fn check_active(&mut self, network: &Network) -> Result<(), SimulationError> {
        let path = route::fill(route::TASK, &[&self.task]);
        if let Some(task) = network.look::<TaskView>(&path).await?
            && task.summary.status != TaskStatus::Active
        {
            let why = task.history.last().and_then(|change| change.detail.clone()).unwrap_or_default();
            self.stop(format!("the task is {}: {why}", task.summary.status));
        }
        Ok(())
    }

    /// Starts the evaluation of a version.
    async fn score(
        &mut self,
        network: &Network,
        pool: &TrainingPool,
        round: u32,
        version: u32,
        at: Moment,
    ) -> Result<(), SimulationError> {
        let Some(test) = self.test.clone() else { return Ok(()) };
        let file = network.download(&route::model_parameters(self.task, version)).await?;
        let (architecture, layout) = (self.architecture.clone(), Arc::clone(&self.layout));
        // Not needed before the next round is over.
        let job = pool.start(Moment(u64::MAX), move || {
            let parameters = architecture.read_published(&file, &layout).map_err(|error| error.to_string())?;
            let found =
                test.with_examples(|examples| train::evaluate(&architecture, &parameters, examples, &Processor::Cpu));
            found.map_err(|error| error.to_string())
        });
        self.scoring = Some(Scoring { round, at, bytes: self.carried.0 + self.carried.1, job });
        Ok(())
    }

    /// Takes the result of the last evaluation.
    fn settle(&mut self, progress: &mut dyn FnMut(Progress<'_>)) {
        let Some(Scoring { round, at, bytes, job }) = self.scoring.take() else { return };
        // A model whose loss is not a number has no score.
        if let Some(Ok(Evaluation { loss, accuracy, .. })) = job.finish() {
            let point = Point { round, seconds: seconds(at.elapsed()), bytes, accuracy, loss };
            self.curve.push(point);
            if self.until_accuracy.is_some_and(|wanted| accuracy >= wanted) && self.reached.is_none() {
                self.reached = Some(point);
                self.is_over = true;
            }
            if let Some(last) = self.ended.last_mut().filter(|_| round > 0) {
                (last.accuracy, last.loss) = (Some(accuracy), Some(loss));
            }
        }
        if round > 0 {
            self.tell_last(progress);
        }
    }

    fn tell_last(&self, progress: &mut dyn FnMut(Progress<'_>)) {
        if let Some(last) = self.ended.last() {
            progress(Progress::Round(last));
        }
    }

    /// Completes the report. `updates` is the number of accepted updates per device.
    pub(crate) fn report(mut self, now: Moment, updates: Vec<u32>, progress: &mut dyn FnMut(Progress<'_>)) -> Report {
        self.settle(progress);
        let end = seconds(if self.stopped.is_some() { now } else { self.last_at }.since(self.start));
        Report {
            population: self.population,
            rounds_completed: self.completed,
            rounds_failed: self.failed,
            seconds: end,
            rounds_per_hour: if end > 0.0 { f64::from(self.completed) * 3600.0 / end } else { 0.0 },
            bytes_up: self.carried.0,
            bytes_down: self.carried.1,
            trainings: self.trainings,
            updates: self.updates,
            vanished: self.vanished,
            waiting: self.waiting.finish(&self.ended),
            participation: Participation::of(updates),
            curve: self.curve,
            reached: self.reached,
            rounds: self.ended,
            model_sha256: self.model,
            privacy: self.privacy,
            regions: self.regions,
            stopped: self.stopped,
        }
    }
}

/// Regions that have done nothing yet; none without regions.
fn region_reports(experiment: &Experiment) -> Vec<RegionReport> {
    let Some(regions) = &experiment.regions else { return Vec::new() };
    let population = |region| regions.devices(region, experiment.population).1;
    (0..regions.count)
        .map(|region| RegionReport { population: population(region), ..RegionReport::default() })
        .collect()
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
