//! The engine: finds tasks with work to do, processes several at once, and sleeps until something changes.
//!
//! It wakes on [`WakeEvent::Work`] and at the next deadline of any round; polling only compensates for lost wake-ups. One worker at a time
//! processes a task, step after step, until the task has to wait for participants or time.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use federation::id::TaskId;
use federation::time::Timestamp;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use store::{WakeEvent, WakeSubscription};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::lease::Lease;
use super::plan::{InputSize, Next, Step, plan};
use super::situation::Situation;
use super::workers::{Job, Workers};
use crate::observe::During;
use crate::work::census::keep_counting;
use crate::work::close_phase::close_phase;
use crate::work::collect_garbage::{ClockPace, Collected, collect_garbage};
use crate::work::grant::grant;
use crate::work::keep_ledger::check_ledgers;
use crate::work::number_events::EventLog;
use crate::work::open_round::open_round;
use crate::work::publish_version::publish_version;
use crate::work::releases::release_sum::release_sum;
use crate::work::shred::UnknownUses;
use crate::work::summing::sum_chunk::sum_chunk;
use crate::work::summing::sums::SumCache;
use crate::work::{Environment, StepError, WorkConfig};
use recipe::TaskModel;

/// Maximum repetitions of a step without a changed fact. Then the step pauses: it has a bug, and endless repetition would block other
/// tasks.
const IN_VAIN_MAX: u32 = 3;
/// While idle, surveys take at most one in this many parts of the time.
const IDLE_SHARE: u32 = 50;
/// Longest rest after a survey, however long the survey took.
const REST_MAX: Duration = Duration::from_millis(100);

/// Takes every task's next step. Clones share the engine.
#[derive(Clone)]
pub struct Engine(Arc<EngineState>);

struct EngineState {
    env: Environment,
    holder: Uuid,
    sums: SumCache,
    unknown_uses: UnknownUses,
}

/// Result of one survey of the rows.
struct TaskSurvey {
    /// Tasks with work to do, oldest first.
    runnable: Vec<TaskId>,
    /// The earliest time at which a task may have work to do.
    next: Option<Timestamp>,
}

impl Engine {
    /// A stopped engine. It holds leases under an id drawn from `env.random`.
    #[must_use]
    pub fn new(env: Environment) -> Self {
        let holder = env.random.uuid();
        Self(Arc::new(EngineState::new(env, holder)))
    }

    /// An engine with another configuration and empty caches, for tests and simulations.
    #[must_use]
    pub fn with_config(&self, change: impl FnOnce(WorkConfig) -> WorkConfig) -> Self {
        let mut env = self.0.env.clone();
        env.config = change(env.config);
        Self(Arc::new(EngineState::new(env, self.0.holder)))
    }

    /// Works until `shutdown` is cancelled, then lets running steps finish. Errors are logged, counted and retried.
    pub async fn run(&self, shutdown: CancellationToken) {
        describe_metrics();
        let log = tokio::spawn(EventLog::new(self.0.env.clone(), self.0.holder).run(shutdown.clone()));
        let counting = tokio::spawn(keep_counting(self.0.env.clone(), shutdown.clone()));
        let mut wakes = self.0.env.store.wake().subscribe();
        let mut workers = Workers::default();
        let started = Instant::now();
        let mut garbage_at = started;
        let mut pace = ClockPace::new(self.0.env.clock.now());
        while !shutdown.is_cancelled() {
            let looked_at = Instant::now();
            let next = self.look_and_spawn(&mut workers, looked_at).await;
            if Instant::now() >= garbage_at {
                garbage_at = Instant::now() + self.0.env.config.garbage_interval;
                let tolerance = self.0.env.config.garbage_grace / 2;
                if pace.has_jumped_ahead(self.0.env.clock.now(), started.elapsed(), tolerance) {
                    tracing::warn!("the clock jumped ahead: garbage is left until it keeps pace again");
                } else {
                    let inner = Arc::clone(&self.0);
                    workers.start(Job::Garbage, async move { inner.collect_garbage(&inner.env).await.map(drop) });
                }
            }
            // A survey is slower with more waiting participants: resting limits it to half of the time.
            let rest = looked_at.elapsed().min(REST_MAX);
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = self.until_something_changes(&mut wakes, &mut workers, next, rest) => {}
            }
        }
        while workers.finish_one().await {}
        counting.await.unwrap_or_else(|error| tracing::error!(%error, "counting for gauges ended badly: {error}"));
        log.await.unwrap_or_else(|error| tracing::error!(%error, "placing events ended badly: {error}"));
    }

    /// Numbers all pending events, and signs the end; returns their number. For tests and simulations.
    ///
    /// # Errors
    /// Errors of the store; [`StepError::LeaseLost`] while another worker does so.
    pub fn number_events(&self) -> BoxFuture<'_, Result<usize, StepError>> {
        Box::pin(async move { EventLog::new(self.0.env.clone(), self.0.holder).place_all().await })
    }

    /// Takes all currently possible steps in sequence; returns their number. For tests and simulations with virtual time.
    ///
    /// # Errors
    /// The first error of a step. Its task's lease is given up, except at [`StepError::Stopped`].
    pub fn step_all(&self) -> BoxFuture<'_, Result<usize, StepError>> {
        Box::pin(async move {
            let mut steps = 0;
            loop {
                let survey = self.0.survey(self.0.env.clock.now()).await?;
                if survey.runnable.is_empty() {
                    return Ok(steps);
                }
                let before = steps;
                for task in survey.runnable {
                    match self.0.work_on(task).await {
                        Ok(taken) => steps += taken,
                        // Another worker has it.
                        Err(StepError::LeaseLost(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                if steps == before {
                    return Ok(steps);
                }
            }
        })
    }

    /// Verifies every privacy ledger against its end stored outside the database; pauses the tasks with a mismatch.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn check_ledgers(&self) -> BoxFuture<'_, Result<(), StepError>> {
        Box::pin(async move { check_ledgers(&self.0.env).await })
    }

    /// Collects garbage now.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn collect_garbage(&self) -> BoxFuture<'_, Result<Collected, StepError>> {
        Box::pin(async move { self.0.collect_garbage(&self.0.env).await })
    }

    /// Collects garbage now, including new blobs. The caller guarantees that no row is about to be written, as a simulation can between two
    /// requests.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn collect_all_garbage(&self) -> BoxFuture<'_, Result<Collected, StepError>> {
        Box::pin(async move {
            let config = WorkConfig { garbage_grace: Duration::ZERO, ..self.0.env.config };
            self.0.collect_garbage(&Environment { config, ..self.0.env.clone() }).await
        })
    }

    /// When a task may next have work to do without changes.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn next_deadline(&self) -> BoxFuture<'_, Result<Option<Timestamp>, StepError>> {
        Box::pin(async move { Ok(self.0.survey(self.0.env.clock.now()).await?.next) })
    }

    /// Starts workers for possible steps; returns the time until the next one is due.
    async fn look_and_spawn(&self, workers: &mut Workers, began: Instant) -> Duration {
        let poll = self.0.env.config.poll_interval;
        let now = self.0.env.clock.now();
        let survey = match self.0.survey(now).await {
            Ok(survey) => survey,
            Err(error) => {
                workers.failed(Job::TaskSurvey, &error);
                return workers.retry_in().map_or(poll, |retry| retry.min(poll));
            }
        };
        workers.succeeded(Job::TaskSurvey);
        for task in workers.in_turn(survey.runnable) {
            // Tasks without a free worker are surveyed again when one finishes.
            if workers.tasks() < self.0.env.config.concurrency {
                let inner = Arc::clone(&self.0);
                workers.start(Job::Task(task), async move { inner.work_on(task).await.map(drop) });
            }
        }
        // Polling for lost wake-ups must not cost more with more waiting participants.
        let poll = poll.max(began.elapsed() * IDLE_SHARE);
        let due = survey.next.map_or(poll, |next| next.since(now));
        workers.retry_in().map_or(due, |retry| due.min(retry)).min(poll)
    }

    async fn until_something_changes(
        &self,
        wakes: &mut WakeSubscription,
        workers: &mut Workers,
        due: Duration,
        rest: Duration,
    ) {
        let wait = tokio::time::sleep(due.max(Duration::from_millis(1)));
        tokio::pin!(wait);
        loop {
            tokio::select! {
                () = &mut wait => return,
                event = wakes.next() => match event {
                    Some(WakeEvent::Work | WakeEvent::Task(_) | WakeEvent::Lost) => break,
                    Some(
                        WakeEvent::Assigned(_)
                        | WakeEvent::Round(_)
                        | WakeEvent::Opened(_)
                        | WakeEvent::Recorded
                        | WakeEvent::Numbered,
                    ) => {}
                    None => wait.as_mut().await,
                },
                true = workers.finish_one() => return,
            }
        }
        tokio::time::sleep(rest).await;
        // One survey covers all pending wake-ups.
        while wakes.next().now_or_never().flatten().is_some() {}
    }
}

impl EngineState {
    fn new(env: Environment, holder: Uuid) -> Self {
        Self { env, holder, sums: SumCache::default(), unknown_uses: UnknownUses::default() }
    }

    async fn collect_garbage(&self, env: &Environment) -> Result<Collected, StepError> {
        collect_garbage(env, self.holder, &self.unknown_uses).await
    }

    async fn survey(&self, now: Timestamp) -> Result<TaskSurvey, StepError> {
        let situations = self.env.store.read("survey", |tx| {
            Box::pin(async move {
                let open: Vec<_> = tx.open_rounds().await?.into_iter().map(|row| row.round).collect();
                let active = tx.active_tasks().await?;
                // A paused task's round continues.
                let mut tasks: Vec<_> = active.iter().map(|task| task.id).collect();
                tasks.extend(open.iter().map(|round| round.key.task).filter(|id| !active.iter().any(|t| t.id == *id)));
                let mut situations = Vec::with_capacity(tasks.len());
                for task in tasks {
                    situations.extend(Situation::read(tx, task, now).await?);
                }
                Ok::<_, StepError>(situations)
            })
        });
        let situations = situations.await?;
        self.forget_all_but(&situations);
        let mut survey = TaskSurvey { runnable: Vec::new(), next: None };
        for situation in &situations {
            match self.plan(situation, now) {
                Ok(Next::Do(_)) => survey.runnable.push(situation.task.id),
                Ok(Next::Wait(Some(until))) => survey.next = Some(survey.next.map_or(until, |next| next.min(until))),
                Ok(Next::Wait(None)) => {}
                // Its worker logs the reason, and backs off.
                Err(_) => survey.runnable.push(situation.task.id),
            }
        }
        Ok(survey)
    }

    fn plan(&self, situation: &Situation, now: Timestamp) -> Result<Next, StepError> {
        let model = self.model(situation)?;
        let config = &self.env.config;
        Ok(plan(situation, InputSize::of(&model, config), config, now))
    }

    /// Derived from the immutable specification.
    fn model(&self, situation: &Situation) -> Result<Arc<TaskModel>, StepError> {
        self.env.models.of(&situation.task).map_err(StepError::unworkable)
    }

    fn forget_all_but(&self, situations: &[Situation]) {
        let rounds: HashSet<_> = situations.iter().filter_map(Situation::open_round).map(|round| round.key).collect();
        self.sums.retain(|attempt| rounds.contains(&attempt));
    }

    /// Takes steps in sequence; returns their number.
    async fn work_on(&self, task: TaskId) -> Result<usize, StepError> {
        let mut lease = Lease::new(task, self.holder, self.env.config.lease_ttl);
        let taken = self.take_steps(task, &mut lease).await;
        if matches!(taken, Err(StepError::Stopped(_))) {
            return taken;
        }
        let released = lease.release(&self.env).await;
        let taken = taken?;
        released?;
        Ok(taken)
    }

    async fn take_steps(&self, task: TaskId, lease: &mut Lease) -> Result<usize, StepError> {
        let mut taken = 0;
        let mut before: Option<(Step, Situation)> = None;
        let mut in_vain = 0;
        loop {
            let now = self.env.clock.now();
            let read = self.env.store.read("situation", |tx| Box::pin(Situation::read(tx, task, now)));
            let Some(situation) = read.await? else { return Ok(taken) };
            let Next::Do(step) = self.plan(&situation, now)? else { return Ok(taken) };
            let is_same = before.as_ref().is_some_and(|(last, seen)| *last == step && *seen == situation);
            in_vain = if is_same { in_vain + 1 } else { 0 };
            if in_vain >= IN_VAIN_MAX {
                return Err(StepError::unworkable(format!(
                    "step {} changes nothing, and is due all the same",
                    step.as_str()
                )));
            }
            before = Some((step, situation.clone()));
            let model = self.model(&situation)?;
            let began = Instant::now();
            let outcome = self.take(step, lease, &model, &situation).await;
            metrics::histogram!("tributary_step_seconds", "step" => step.as_str()).record(began.elapsed());
            if let Some(round) = situation.open_round() {
                let during = During { began: now, ended: self.env.clock.now() };
                self.env.traces.step(round.key, step.as_str(), outcome.is_err(), during);
            }
            if let Err(error) = outcome {
                metrics::counter!("tributary_step_errors_total", "step" => step.as_str(), "error" => error.code())
                    .increment(1);
                return Err(error);
            }
            taken += 1;
        }
    }

    async fn take(
        &self,
        step: Step,
        lease: &mut Lease,
        model: &TaskModel,
        situation: &Situation,
    ) -> Result<(), StepError> {
        let env = &self.env;
        match step {
            Step::Grant => grant(env, lease, situation).await,
            Step::OpenRound => open_round(env, lease, model, situation).await,
            Step::ClosePhase => close_phase(env, lease, situation).await,
            Step::SumChunk => sum_chunk(env, lease, &self.sums, model, situation).await,
            Step::ReleaseSum => release_sum(env, lease, &self.sums, model, situation).await,
            Step::PublishVersion => publish_version(env, lease, model, situation).await,
        }
    }
}

fn describe_metrics() {
    metrics::describe_counter!("tributary_rounds_total", "Rounds that ended, by outcome and reason");
    metrics::describe_histogram!("tributary_round_phase_seconds", "How long phases of rounds took");
    metrics::describe_histogram!("tributary_step_seconds", "How long background steps took, failed ones too, by step");
    metrics::describe_histogram!(
        "tributary_device_seconds",
        "How long devices worked on a sum, by device and operation"
    );
    metrics::describe_counter!(
        "tributary_participants_dropped_total",
        "Participants that are no longer waited for, by the round's phase and the reason"
    );
    metrics::describe_counter!(
        "tributary_leases_lost_total",
        "Leases that another worker took from their holder, by work"
    );
    metrics::describe_counter!(
        "tributary_leases_refused_total",
        "Leases that another worker had when they were wanted, by work"
    );
    metrics::describe_counter!("tributary_inputs_folded_total", "Masked inputs that sums hold");
    metrics::describe_counter!(
        "tributary_step_errors_total",
        "Steps that failed and were tried again, by step and error"
    );
    metrics::describe_counter!("tributary_trainings_granted_total", "Participants told to train ahead of rounds");
    metrics::describe_counter!("tributary_blobs_collected_total", "Blobs removed because no row needs them");
    metrics::describe_counter!(
        "tributary_blobs_repaired_total",
        "Blobs stored again in a copy that lacked them or was damaged"
    );
    metrics::describe_counter!("tributary_blob_copy_failures_total", "Calls that a copy of the blobs did not serve");
    metrics::describe_counter!(
        "tributary_blob_requests_total",
        "Requests to S3 stores, repetitions included, by method"
    );
}
