//! `tributary round watch`: rounds as they change, and on a terminal how far the present phase has come.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::json;
use wire::inspect::{RoundView, TaskSummary, TaskView};
use wire::{RoundState, TaskId, TaskStatus, route};

use super::bar;
use super::words::{metrics, state};
use crate::command::task;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, when};
use crate::server::Server;

/// Time without a change before the task is queried for the reason: first and later.
const FIRST_WAIT: Duration = Duration::from_millis(1500);
const WAIT: Duration = Duration::from_secs(20);
/// Interval between updates of the progress bar.
const LOOK: Duration = Duration::from_secs(1);

/// Follows rounds as they change.
pub(super) struct Watch {
    server: Server,
    task: TaskId,
    output: Output,
    /// Hidden unless a terminal shows it.
    bar: ProgressBar,
    /// The last printed explanation of a standstill.
    said: Mutex<Vec<String>>,
    /// The last planned round of the task, once it was said that the watched one lies beyond it.
    said_last: Mutex<Option<u32>>,
}

impl Watch {
    /// A watch on the rounds of a task, without a request so far.
    pub(super) fn new(server: Server, task: TaskId, output: Output) -> Self {
        let bar = if output.is_live() { ProgressBar::new(0) } else { ProgressBar::hidden() };
        Self { server, task, output, bar: bar::styled(bar), said: Mutex::default(), said_last: Mutex::default() }
    }

    /// Prints changes until the round is over or, with no round given, the task.
    ///
    /// # Errors
    /// [`Exit::Round`] unless it ended well; those of the connection.
    pub(super) async fn run(self, round: Option<u32>) -> Outcome {
        let ended = self.watch(round).await;
        self.bar.finish_and_clear();
        ended
    }

    async fn watch(&self, round: Option<u32>) -> Outcome {
        if let Some(number) = round {
            return match self.follow(number, None).await? {
                Some(round) if round.state == RoundState::Completed => Ok(()),
                Some(round) => Err(ended(&round)),
                None => Err(Failure::new(Exit::Round, "the task is over; this round never opened")),
            };
        }
        let task = self.server.task_view(self.task).await?;
        let latest: Vec<RoundView> = self.server.list(&route::fill(route::ROUNDS, &[&self.task]), 1).await?;
        let mut number = latest.first().map_or(1, |round| {
            let has_next = round.state == RoundState::Completed && task.summary.status == TaskStatus::Active;
            round.number + u32::from(has_next)
        });
        let mut after = None;
        while let Some(round) = self.follow(number, after).await? {
            match round.state {
                RoundState::Completed if self.is_complete().await? => return Ok(()),
                RoundState::Completed => (number, after) = (number + 1, None),
                // Its number is not tried again.
                RoundState::Failed if round.spent => (number, after) = (number + 1, None),
                RoundState::Failed => {
                    self.tell_why(&self.server.task_view(self.task).await?);
                    after = Some(RoundState::Failed);
                }
                RoundState::Selecting
                | RoundState::Sharing
                | RoundState::Collecting
                | RoundState::Confirming
                | RoundState::Unmasking
                | RoundState::Aggregating
                | RoundState::Cancelled => break,
            }
        }
        let task = self.server.task_view(self.task).await?;
        match task.summary.status {
            TaskStatus::Completed => Ok(()),
            status => Err(Failure::new(Exit::Round, format!("the task is {status}{}", reason(&task)))),
        }
    }

    /// Whether the task is complete. Prints why, if rounds are left.
    async fn is_complete(&self) -> Outcome<bool> {
        let task = self.server.task_view(self.task).await?;
        let TaskSummary { status, rounds_completed, rounds_total, .. } = task.summary;
        if status != TaskStatus::Completed {
            return Ok(false);
        }
        if let Some(change) = task.history.last().filter(|_| rounds_completed < rounds_total) {
            self.output.event("task_stopped", change);
            self.line(format!("Completed   after {rounds_completed} of {rounds_total} rounds{}", reason(&task)));
        }
        Ok(true)
    }

    /// Prints the changes of one round from the first state other than `after` until an attempt ends; `None` if the
    /// task ends first.
    async fn follow(&self, number: u32, mut after: Option<RoundState>) -> Outcome<Option<RoundView>> {
        let mut wait = FIRST_WAIT;
        loop {
            if let Some(round) = self.next(number, after, wait).await? {
                self.print(&round);
                if round.state.is_terminal() {
                    return Ok(Some(round));
                }
                (after, wait) = (Some(round.state), FIRST_WAIT);
                continue;
            }
            wait = WAIT;
            let task = self.server.task_view(self.task).await?;
            if task.summary.status.is_terminal() {
                // The task has been idle for long, and will stay so.
                return Ok(None);
            }
            self.tell_beyond(number, &task);
            self.tell_why(&task);
        }
    }

    /// The round in another state than `after`; `None` if it stays in `after` for `wait`.
    async fn next(&self, number: u32, after: Option<RoundState>, wait: Duration) -> Outcome<Option<RoundView>> {
        let look = if self.output.is_live() { LOOK.min(wait) } else { wait };
        let mut left = wait;
        while !left.is_zero() {
            left = left.saturating_sub(look);
            match self.server.watch_round(self.task, number, after, look).await? {
                Some(round) if after == Some(round.state) => bar::show(&self.bar, &round),
                Some(round) => return Ok(Some(round)),
                None => {}
            }
        }
        Ok(None)
    }

    /// Explains why rounds have stopped, unless it was printed already.
    fn tell_why(&self, task: &TaskView) {
        let stopped = task::stopped(task);
        let lines: Vec<_> = stopped
            .as_ref()
            .map(|(_, words)| words.clone())
            .into_iter()
            .chain(task.behind.map(task::behind))
            .chain(task::waits(task))
            .collect();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if *said == lines {
            return;
        }
        stopped.iter().for_each(|(change, _)| self.output.event("task_stopped", change));
        task.behind.iter().for_each(|behind| self.output.event("behind", behind));
        task.shortage.iter().for_each(|shortage| self.output.event("shortage", shortage));
        task.waiting_for.iter().for_each(|waiting_for| self.output.event("waiting_for", waiting_for));
        lines.iter().for_each(|line| self.line(line.clone()));
        *said = lines;
    }

    /// Prints once that the task does not plan a round of this number. The round may still come.
    fn tell_beyond(&self, number: u32, task: &TaskView) {
        let last = task.summary.rounds_total.saturating_add(task.rounds_forfeited);
        let mut said = self.said_last.lock().unwrap_or_else(PoisonError::into_inner);
        if number <= last || *said == Some(last) {
            return;
        }
        self.output.event("round_not_planned", &json!({ "round": number, "last_round": last }));
        self.line(format!(
            "task {} plans rounds up to {last}: round {number} opens only if others before it are lost, or skipped by \
             `tributary task rebase`",
            task.summary.name
        ));
        *said = Some(last);
    }

    /// Prints a line above the bar.
    fn line(&self, words: String) {
        self.bar.suspend(|| self.output.line(words));
    }

    fn print(&self, round: &RoundView) {
        self.output.event("round", round);
        let deadline = round.phases.last().filter(|_| !round.state.is_terminal()).and_then(|phase| phase.deadline_at);
        let until = deadline.map(|at| format!("until {} at the latest  ", when(at))).unwrap_or_default();
        self.line(format!(
            "round {} (attempt {})  {}  cohort {}, reported {}, dropped {}  {until}{}",
            round.number,
            round.attempt,
            state(round),
            round.cohort,
            round.reported,
            round.dropped,
            metrics(round)
        ));
    }
}

fn ended(round: &RoundView) -> Failure {
    Failure::new(Exit::Round, format!("round {} ended {}", round.number, state(round)))
}

fn reason(task: &TaskView) -> String {
    let detail = task.history.last().and_then(|change| change.detail.as_deref());
    detail.map(|detail| format!(": {detail}")).unwrap_or_default()
}
