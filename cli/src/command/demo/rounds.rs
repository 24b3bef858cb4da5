//! Watches the demo's rounds as an operator would, and evaluates each published model.

use std::sync::Arc;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use wire::TaskStatus;
use wire::inspect::{CompressionView, ModelVersionRef, RoundView};
use wire::{RoundState, TaskId, route};

use super::events::RoundEvent;
use super::scene::{Scene, blocking};
use super::table;
use super::world::World;
use crate::command::model::Score;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{LiveTable, Output};

/// Duration of a long poll; shorter for a live display.
const WAIT: Duration = Duration::from_secs(10);
const WAIT_LIVE: Duration = Duration::from_millis(200);

/// The last published model.
pub(super) struct PublishedModel {
    /// Number of completed rounds.
    pub(super) rounds: u32,
    pub(super) model: ModelVersionRef,
    pub(super) bytes: Vec<u8>,
    /// `None` if the published version is not a complete model.
    pub(super) score: Option<Score>,
    pub(super) compression: Option<CompressionView>,
    /// Seconds from the first round's opening to the last one's end.
    pub(super) seconds: f64,
}

/// Watches the rounds of the demo's task, one after the other.
pub(super) struct Rounds<'a> {
    pub(super) task: TaskId,
    pub(super) count: u32,
    pub(super) scene: &'a Scene,
    pub(super) table: &'a LiveTable,
    pub(super) output: Output,
    /// Whether published versions are complete models, which can be evaluated.
    pub(super) is_whole: bool,
}

impl Rounds<'_> {
    /// Follows the rounds until the last one is complete, or the privacy budget is used up.
    pub(super) async fn run(&self, world: &mut World) -> Outcome<PublishedModel> {
        let (mut number, mut last, mut opened_at) = (1, None::<PublishedModel>, None);
        loop {
            let Some(round) = self.until_over(world, number).await? else { return spent(last) };
            world.round_over(round.number, round.attempt);
            let opened_at = *opened_at.get_or_insert(round.opened_at);
            let ended_at = round.ended_at.unwrap_or(round.opened_at);
            let Some(model) = round.model.clone().filter(|_| round.state == RoundState::Completed) else {
                let is_used_up = round.spent;
                self.show(RoundEvent::new(round, None));
                if is_used_up {
                    number += 1;
                } else if !self.go_on(world, number).await? {
                    return spent(last);
                }
                continue;
            };
            let bytes = fetch(world, self.task, &model).await?;
            let (score, bytes) = self.score(bytes).await?;
            let compression = round.compression.clone();
            self.show(RoundEvent::new(round, score));
            let rounds = last.map_or(0, |last| last.rounds) + 1;
            let seconds = ended_at.since(opened_at).as_secs_f64();
            let made = PublishedModel { rounds, model, bytes, score, compression, seconds };
            if rounds == self.count {
                return Ok(made);
            }
            last = Some(made);
            number += 1;
        }
    }

    /// Waits for the end of the next attempt; `None` if the privacy budget is too small for another round.
    async fn until_over(&self, world: &mut World, number: u32) -> Outcome<Option<RoundView>> {
        let wait = if self.output.is_live() { WAIT_LIVE } else { WAIT };
        let mut after = None;
        loop {
            let server = world.server.clone();
            let seen = tokio::select! {
                seen = server.watch_round(self.task, number, after, wait) => seen?,
                failed = world.check() => return Err(failed.err().unwrap_or_else(|| Failure::new(Exit::Internal, "a participant ended"))),
            };
            match seen {
                Some(round) if round.state.is_terminal() => return Ok(Some(round)),
                Some(round) => {
                    self.table.message(table::progress(&round));
                    after = Some(round.state);
                }
                None if self.still_active(world, number).await? => {}
                None => return Ok(None),
            }
        }
    }

    /// After a failed attempt: waits for the next one. Returns false if the privacy budget is too small for it.
    async fn go_on(&self, world: &mut World, number: u32) -> Outcome<bool> {
        loop {
            let next = world.server.watch_round(self.task, number, Some(RoundState::Failed), WAIT_LIVE).await?;
            if next.is_some_and(|round| !round.state.is_terminal() || round.state == RoundState::Completed) {
                return Ok(true);
            }
            if !self.still_active(world, number).await? {
                return Ok(false);
            }
        }
    }

    /// Whether more rounds will come; if not, the privacy budget is used up.
    async fn still_active(&self, world: &World, number: u32) -> Outcome<bool> {
        let task = world.server.task_view(self.task).await?;
        match task.summary.status {
            TaskStatus::Active | TaskStatus::Completed => Ok(true),
            TaskStatus::BudgetExhausted => Ok(false),
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
        self.table.row(&table::row(&round));
        self.output.event("round", &round);
    }

    async fn score(&self, bytes: Vec<u8>) -> Outcome<(Option<Score>, Vec<u8>)> {
        if !self.is_whole {
            return Ok((None, bytes));
        }
        let (architecture, test) = (self.scene.architecture.clone(), Arc::clone(&self.scene.test));
        blocking(move || Ok((Some(Score::of(&architecture, &bytes, &test)?), bytes))).await
    }
}

/// The last model within the privacy budget.
fn spent(last: Option<PublishedModel>) -> Outcome<PublishedModel> {
    let detail =
        "the privacy budget has no room for a single round: raise epsilon, or ask for less noise or more participants";
    last.ok_or_else(|| Failure::new(Exit::Round, detail))
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
