//! The tasks of a region at its coordinator, one for each round of the upper task. Every step can be repeated: a task is found
//! by its name, which follows from the upper task, the round and the received model.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client_sdk::TrainingJob;
use learning::{Layout, checkpoint};
use operator_client::{Server, provenance};
use recipe::digest::sha256;
use serde_json::json;
use task_spec::{InitialModel, TaskSpec};
use wire::admin::{CheckedTask, CreateTask};
use wire::headers::IDEMPOTENCY_KEY;
use wire::inspect::{ModelView, RegionFigures, RoundView, TaskSummary, TaskView};
use wire::{Digest, RoundState, TaskId, TaskStatus, route};

use super::answer::Answer;
use crate::command::task::initial_model;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;

/// Longest wait of a request for the next state of a round.
const WAIT: Duration = Duration::from_secs(20);
/// Shortest time between two requests about a task.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest part of a name that comes from the task file, so that the name with its suffixes has at most 64 characters.
const STEM: usize = 32;

/// The regional tasks of a region, of which at most one runs.
pub(super) struct RegionalTasks {
    server: Server,
    /// The task of a round, but for its name and model.
    spec: TaskSpec,
    /// Beginning of the names of all its tasks.
    prefix: String,
    output: Output,
}

/// One round of the upper task, as a regional task.
pub(super) struct RegionalRound {
    spec: TaskSpec,
    /// The received model, as a file.
    model: Vec<u8>,
    base: Digest,
    round: u32,
}

impl RegionalRound {
    fn name(&self) -> &str {
        &self.spec.name
    }
}

impl RegionalTasks {
    /// The tasks of one region; `origin` differs from that of other regions at the same coordinator.
    pub(super) fn new(server: Server, spec: TaskSpec, origin: &str, output: Output) -> Self {
        let stem: String = spec.name.chars().take(STEM).collect();
        let origin = sha256(origin.as_bytes()).to_string();
        let prefix = format!("{stem}-{}-", &origin[..6]);
        Self { server, spec, prefix, output }
    }

    /// The task file, without name and model of a round.
    pub(super) fn spec(&self) -> &TaskSpec {
        &self.spec
    }

    /// Has the regional coordinator judge the task. Without a connection nothing is judged: each round tries again.
    ///
    /// # Errors
    /// The coordinator rejects the task or the token.
    pub(super) async fn check(&self) -> Outcome {
        if self.spec.model.tensors.is_empty() {
            return Ok(());
        }
        let (query, body) = ([("dry_run", true.to_string())], CreateTask { spec: self.spec.clone() });
        match self.server.post_with::<_, CheckedTask>(route::TASKS, &query, &body).await {
            Err(failure) if is_temporary(&failure) => {
                self.output.note(format!("the regional coordinator does not answer yet: {}", failure.detail));
                Ok(())
            }
            checked => checked.map(drop),
        }
    }

    /// The regional task for a round of the upper task; `spec` has a model.
    pub(super) fn round(&self, mut spec: TaskSpec, model: Vec<u8>, job: &TrainingJob) -> RegionalRound {
        let (round, base) = (job.round, sha256(&model));
        let which = sha256(format!("{}\0{round}\0{base}", job.task).as_bytes()).to_string();
        spec.name = format!("{}{round}-{}", self.prefix, &which[..8]);
        spec.description = format!("round {round} of the upper task {}", job.task);
        spec.model.initial = Some(InitialModel::Stored(base));
        RegionalRound { spec, model, base, round }
    }

    /// Creates the task of a round or finds it, and waits for its end. A connection that fails is tried again.
    ///
    /// # Errors
    /// The coordinator rejects the task, the model or the token; no round was completed.
    pub(super) async fn run(&self, round: &RegionalRound, layout: &Arc<Layout>) -> Outcome<Answer> {
        let mut is_away = false;
        loop {
            match self.try_to_run(round, layout).await {
                Err(failure) if is_temporary(&failure) => {
                    if !is_away {
                        self.output.note(format!("the regional coordinator does not answer: {}", failure.detail));
                    }
                    is_away = true;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                ended => return ended,
            }
        }
    }

    async fn try_to_run(&self, round: &RegionalRound, layout: &Arc<Layout>) -> Outcome<Answer> {
        self.cancel_others(Some(round.name())).await?;
        let id = self.start(round).await?;
        let ended = self.wait_for_end(id).await?;
        self.answer(&ended, round, layout).await
    }

    /// Ends the task of a round, and returns what it has. The caller limits the time.
    ///
    /// # Errors
    /// The task does not exist, or has not completed a round.
    pub(super) async fn cut(&self, round: &RegionalRound, layout: &Arc<Layout>) -> Outcome<Answer> {
        let Some(found) = self.named(round.name()).await?.into_iter().next() else {
            return Err(nothing(round));
        };
        if !found.status.is_terminal() {
            self.cancel(found.id).await?;
        }
        let ended = self.server.task_view(found.id).await?;
        self.answer(&ended, round, layout).await
    }

    /// Ends the tasks of other rounds that still run: the upper coordinator does not wait for them any more.
    ///
    /// # Errors
    /// Those of the connection, and of the token.
    pub(super) async fn cancel_others(&self, name: Option<&str>) -> Outcome {
        let running = [TaskStatus::Active, TaskStatus::Paused, TaskStatus::BudgetExhausted];
        let states = running.map(|status| status.as_str()).join(",");
        let running: Vec<TaskSummary> = self.server.list_where(route::TASKS, &[("state", states)], usize::MAX).await?;
        for task in running {
            if task.name.starts_with(&self.prefix) && Some(task.name.as_str()) != name {
                self.cancel(task.id).await?;
            }
        }
        Ok(())
    }

    /// Cancels a task, unless it has ended.
    async fn cancel(&self, id: TaskId) -> Outcome {
        match self.server.post::<_, TaskView>(&route::fill(route::TASK_CANCEL, &[&id]), &json!({}), None).await {
            Err(failure) if failure.exit == Exit::Conflict => Ok(()),
            cancelled => cancelled.map(drop),
        }
    }

    /// Tasks of this name, newest first.
    async fn named(&self, name: &str) -> Outcome<Vec<TaskSummary>> {
        let mut tasks: Vec<TaskSummary> = self.server.list(route::TASKS, usize::MAX).await?;
        tasks.retain(|task| task.name == name);
        Ok(tasks)
    }

    /// The id of a round's task. One that has ended without a completed round is followed by another of the same name.
    async fn start(&self, round: &RegionalRound) -> Outcome<TaskId> {
        let earlier = self.named(round.name()).await?;
        let told = |id: TaskId, resumed: bool| {
            let (name, number, base) = (round.name(), round.round, round.base);
            let about = json!({ "task": id, "name": name, "round": number, "base": base, "resumed": resumed });
            self.output.event("regional_task", &about);
            let verb = if resumed { "goes on with" } else { "begins" };
            self.output.line(format!("round {number}: the region {verb} task {name} ({id})"));
        };
        if let Some(found) = earlier.first().filter(|task| !task.status.is_terminal() || task.model_version > 0) {
            told(found.id, true);
            return Ok(found.id);
        }
        let named = Path::new("the received model");
        initial_model::send(&mut Cursor::new(&round.model), named, &self.server, self.output).await?;
        // A request that was sent twice creates one task.
        let once = (IDEMPOTENCY_KEY, format!("{}.{}", round.name(), earlier.len()));
        let body = CreateTask { spec: round.spec.clone() };
        let created: TaskView = self.server.post(route::TASKS, &body, Some(once)).await?;
        told(created.summary.id, false);
        Ok(created.summary.id)
    }

    /// Waits until a task opens no further round.
    async fn wait_for_end(&self, id: TaskId) -> Outcome<TaskView> {
        let (mut completed, mut after) = (0, None::<(u32, RoundState)>);
        loop {
            let task = self.server.task_view(id).await?;
            let TaskSummary { status, rounds_completed, rounds_total, .. } = task.summary;
            if rounds_completed > completed {
                completed = rounds_completed;
                let about = json!({ "task": id, "completed": completed, "of": rounds_total });
                self.output.event("regional_round", &about);
                self.output.line(format!("regional round {completed} of {rounds_total} is completed"));
            }
            match status {
                TaskStatus::Completed | TaskStatus::Cancelled => return Ok(task),
                TaskStatus::BudgetExhausted => {
                    self.cancel(id).await?;
                    return self.server.task_view(id).await;
                }
                TaskStatus::Active | TaskStatus::Paused => {}
            }
            let number = rounds_completed.saturating_add(task.rounds_forfeited).saturating_add(1);
            let known = after.filter(|(seen, _)| *seen == number).map(|(_, state)| state);
            let round = self.server.watch_round(id, number, known, WAIT).await?;
            after = round.map(|round| (number, round.state));
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The newest version of a task that has ended, and the figures of its rounds.
    async fn answer(&self, task: &TaskView, round: &RegionalRound, layout: &Arc<Layout>) -> Outcome<Answer> {
        let TaskSummary { id, model_version: version, .. } = task.summary;
        let rounds: Vec<RoundView> = self.server.list(&route::fill(route::ROUNDS, &[&id]), usize::MAX).await?;
        let figures = RegionFigures::of(&round.spec, &rounds).ok_or_else(|| nothing(round))?;
        let model: ModelView = self.server.get(&route::fill(route::MODEL, &[&id, &version]), &[]).await?;
        let record = provenance::record(&self.server, &model).await?;
        let below = record.map(|record| record.sha256());
        let bytes = self.download(&model).await?;
        let parameters =
            checkpoint::read(&bytes, layout).map_err(Failure::because(Exit::Data, "the regional model"))?;
        let RegionFigures { rounds, examples, .. } = figures;
        let about = json!({
            "task": id, "round": round.round, "version": version, "sha256": model.sha256, "rounds": rounds, "examples": examples,
            "record": below,
        });
        self.output.event("regional_answer", &about);
        self.output.line(format!(
            "round {}: the region answers with version {version} after {rounds} of {} rounds, {examples} examples",
            round.round, round.spec.rounds.count
        ));
        Ok(Answer { parameters, figures, below })
    }

    /// The bytes of a version.
    async fn download(&self, model: &ModelView) -> Outcome<Vec<u8>> {
        let path = route::model_parameters(model.task, model.version);
        let response = self.server.download(&path, 0, None).await?;
        let bytes = response.bytes().await.map_err(|error| {
            Failure::caused(Exit::Connection, "the regional model was cut off", &error.without_url())
        })?;
        if sha256(&bytes) != model.sha256 {
            return Err(Failure::new(Exit::Integrity, "the SHA-256 of the regional model is not the published one"));
        }
        Ok(bytes.into())
    }
}

fn nothing(round: &RegionalRound) -> Failure {
    Failure::new(Exit::Round, format!("the regional task {} has completed no round", round.name()))
}

/// Whether the same request may succeed later.
fn is_temporary(failure: &Failure) -> bool {
    matches!(failure.exit, Exit::Connection | Exit::Unavailable | Exit::Server)
}
