//! Watches the demo's rounds as an operator would, and evaluates what each one publishes.

use std::sync::Arc;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use wire::inspect::{ModelVersionRef, RoundView};
use wire::task::TaskStatus;
use wire::{RoundState, TaskId, route};

use super::Scene;
use super::events::RoundEvent;
use super::table::LiveTable;
use super::world::World;
use crate::command::model::Score;
use crate::command::task;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;

/// How long one request waits for a change: shorter where a person looks at numbers that move.
const WAIT: Duration = Duration::from_secs(10);
const WAIT_LIVE: Duration = Duration::from_millis(200);

/// The last published model.
pub(super) struct Last {
    pub(super) model: ModelVersionRef,
    pub(super) bytes: Vec<u8>,
    pub(super) score: Score,
    /// From the first round's opening to the last one's end.
    pub(super) seconds: f64,
}

/// Watches the rounds of the demo's task, one after the other.
pub(super) struct Rounds<'a> {
    pub(super) task: TaskId,
    pub(super) count: u32,
    pub(super) scene: &'a Scene,
    pub(super) table: &'a LiveTable,
    pub(super) output: Output,
}

impl Rounds<'_> {
    /// Until the last round has made its model.
    pub(super) async fn run(&self, world: &mut World) -> Outcome<Last> {
        let (mut number, mut completed, mut opened_at) = (1, 0, None);
        loop {
            let round = self.until_over(world, number).await?;
            world.round_over(round.number, round.attempt);
            let opened_at = *opened_at.get_or_insert(round.opened_at);
            let ended_at = round.ended_at.unwrap_or(round.opened_at);
            let Some(model) = round.model.clone().filter(|_| round.state == RoundState::Completed) else {
                let spent = round.spent;
                self.show(RoundEvent::new(round, None));
                if spent {
                    number += 1;
                } else {
                    self.go_on(world, number).await?;
                }
                continue;
            };
            let bytes = fetch(world, self.task, &model).await?;
            let (score, bytes) = self.score(bytes).await?;
            self.show(RoundEvent::new(round, Some(score)));
            completed += 1;
            if completed == self.count {
                return Ok(Last { model, bytes, score, seconds: ended_at.since(opened_at).as_secs_f64() });
            }
            number += 1;
        }
    }

    /// Waits for the end of an attempt that has not been shown yet.
    async fn until_over(&self, world: &mut World, number: u32) -> Outcome<RoundView> {
        let wait = if self.output.is_live() { WAIT_LIVE } else { WAIT };
        let mut after = None;
        loop {
            let server = world.server.clone();
            let seen = tokio::select! {
                seen = server.watch_round(self.task, number, after, wait) => seen?,
                failed = world.check() => return Err(failed.err().unwrap_or_else(|| Failure::new(Exit::Internal, "a participant ended"))),
            };
            match seen {
                Some(round) if round.state.is_terminal() => return Ok(round),
                Some(round) => {
                    self.table.progress(&round);
                    after = Some(round.state);
                }
                None => self.still_active(world, number).await?,
            }
        }
    }

    /// After an attempt that made no model: waits for the next one, if there will be one.
    async fn go_on(&self, world: &mut World, number: u32) -> Outcome {
        loop {
            let next = world.server.watch_round(self.task, number, Some(RoundState::Failed), WAIT_LIVE).await?;
            if next.is_some_and(|round| !round.state.is_terminal() || round.state == RoundState::Completed) {
                return Ok(());
            }
            self.still_active(world, number).await?;
        }
    }

    async fn still_active(&self, world: &World, number: u32) -> Outcome {
        let task = task::get(&world.server, self.task).await?;
        match task.summary.status {
            TaskStatus::Active | TaskStatus::Completed => Ok(()),
            status => {
                let why = task.history.last().and_then(|change| change.detail.clone()).unwrap_or_default();
                Err(Failure::new(
                    Exit::Round,
                    format!("round {number} did not complete and the task is {status}: {why}"),
                ))
            }
        }
    }

    fn show(&self, round: RoundEvent) {
        self.table.row(&round);
        self.output.event("round", &round);
    }

    async fn score(&self, bytes: Vec<u8>) -> Outcome<(Score, Vec<u8>)> {
        let (architecture, test) = (self.scene.architecture.clone(), Arc::clone(&self.scene.test));
        blocking(move || Ok((Score::of(&architecture, &bytes, &test)?, bytes))).await
    }
}

/// A published model, whole and undamaged.
async fn fetch(world: &World, task: TaskId, model: &ModelVersionRef) -> Outcome<Vec<u8>> {
    let response = world.server.download(&route::model_parameters(task, model.version), 0, None).await?;
    let bytes = response.bytes().await.map_err(Failure::because(Exit::Connection, "the model was cut off"))?;
    if digest(&SHA256, &bytes).as_ref() != model.sha256.0 {
        return Err(Failure::new(Exit::Integrity, format!("model version {}", model.version)));
    }
    Ok(bytes.to_vec())
}

/// Work that takes a core for a while.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Outcome<T> + Send + 'static) -> Outcome<T> {
    tokio::task::spawn_blocking(work).await.map_err(Failure::because(Exit::Internal, "a computation ended badly"))?
}
