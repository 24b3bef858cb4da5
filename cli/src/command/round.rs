//! `tributary round`: look at rounds, and watch them as they go.

use std::time::Duration;

use wire::TaskStatus;
use wire::inspect::{RoundView, TaskView};
use wire::{RoundState, TaskId, route};

use crate::command::task;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Align, Output, Table, bytes, duration, figure};
use crate::server::{Server, ServerArgs};

mod show;
pub(crate) mod words;

use words::{base_given_by, metrics, state};

/// Duration of a long poll.
const WAIT: Duration = Duration::from_secs(20);

/// What to do with rounds.
#[derive(clap::Subcommand)]
pub(crate) enum RoundCommand {
    /// List a task's rounds, newest first
    List {
        /// Id or name of the task
        task: String,
        /// Maximum number of entries
        #[arg(long, default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show one round: phases, participants, result
    Show {
        /// Id or name of the task
        task: String,
        /// The round's number, from 1
        round: u32,
        /// Number of the attempt [default: the latest]
        #[arg(long)]
        attempt: Option<u32>,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Print every change, until the round (or with no round given, the task) is over
    Watch {
        /// Id or name of the task
        task: String,
        /// The round's number; without it, from the current round to the last
        round: Option<u32>,
        #[command(flatten)]
        server: ServerArgs,
    },
}

impl RoundCommand {
    /// Whether it prints events.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::Watch { .. })
    }

    pub(crate) async fn run(self, output: Output) -> Outcome {
        match self {
            Self::List { task, limit, server } => {
                let server = Server::new(&server)?;
                let task = server.task(&task).await?;
                let rounds: Vec<RoundView> = server.list(&route::fill(route::ROUNDS, &[&task]), limit).await?;
                output.answer(&rounds, || table(&rounds));
                Ok(())
            }
            Self::Show { task, round, attempt, server } => {
                let server = Server::new(&server)?;
                let task = server.task(&task).await?;
                show::show(&server, task, round, attempt, output).await
            }
            Self::Watch { task, round, server } => {
                let server = Server::new(&server)?;
                let task = server.task(&task).await?;
                Watch { server, task, output }.run(round).await
            }
        }
    }
}

fn table(rounds: &[RoundView]) -> String {
    let mut table = Table::new(&[
        ("ROUND", Align::Right),
        ("ATTEMPT", Align::Right),
        ("STATE", Align::Left),
        ("COHORT", Align::Right),
        ("REPORTED", Align::Right),
        ("DROPPED", Align::Right),
        ("UP", Align::Right),
        ("DOWN", Align::Right),
        ("TIME", Align::Right),
        ("EPSILON", Align::Right),
        ("METRICS", Align::Left),
    ]);
    for round in rounds {
        table.row(vec![
            round.number.to_string(),
            round.attempt.to_string(),
            state(round),
            round.cohort.to_string(),
            round.reported.to_string(),
            round.dropped.to_string(),
            bytes(round.bytes_up),
            bytes(round.bytes_down),
            duration(Duration::from_secs_f64(round.seconds.max(0.0))),
            round.epsilon.as_ref().map_or_else(|| "-".to_owned(), |spent| figure(spent.published)),
            metrics(round),
        ]);
    }
    table.render("There are no rounds yet.")
}

/// Follows rounds as they change.
struct Watch {
    server: Server,
    task: TaskId,
    output: Output,
}

impl Watch {
    async fn run(&self, round: Option<u32>) -> Outcome {
        if let Some(number) = round {
            return match self.follow(number, None).await? {
                Some(round) if round.state == RoundState::Completed => Ok(()),
                Some(round) => Err(ended(&round)),
                None => Err(Failure::new(Exit::Round, "the task is over; this round never opened")),
            };
        }
        let task = task::get(&self.server, self.task).await?;
        let latest: Vec<RoundView> = self.server.list(&route::fill(route::ROUNDS, &[&self.task]), 1).await?;
        let mut number = latest.first().map_or(1, |round| match round.state {
            RoundState::Completed if task.summary.status == TaskStatus::Active => round.number + 1,
            _ => round.number,
        });
        let mut after = None;
        while let Some(round) = self.follow(number, after).await? {
            match round.state {
                RoundState::Completed if self.is_complete().await? => return Ok(()),
                RoundState::Completed => (number, after) = (number + 1, None),
                // Its number is not tried again.
                RoundState::Failed if round.spent => (number, after) = (number + 1, None),
                RoundState::Failed => {
                    self.tell_why(&task::get(&self.server, self.task).await?);
                    after = Some(RoundState::Failed);
                }
                _ => break,
            }
        }
        let task = task::get(&self.server, self.task).await?;
        match task.summary.status {
            TaskStatus::Completed => Ok(()),
            status => Err(Failure::new(Exit::Round, format!("the task is {status}{}", reason(&task)))),
        }
    }

    async fn is_complete(&self) -> Outcome<bool> {
        Ok(task::get(&self.server, self.task).await?.summary.status == TaskStatus::Completed)
    }

    /// Prints the changes of one round from the first state other than `after` until an attempt ends; `None` if the
    /// task ends first.
    async fn follow(&self, number: u32, mut after: Option<RoundState>) -> Outcome<Option<RoundView>> {
        loop {
            let round = self.server.watch_round(self.task, number, after, WAIT).await?;
            if let Some(round) = round.filter(|round| after != Some(round.state)) {
                self.print(&round);
                if round.state.is_terminal() {
                    return Ok(Some(round));
                }
                after = Some(round.state);
                continue;
            }
            let task = task::get(&self.server, self.task).await?;
            if task.summary.status.is_terminal() {
                // Nothing has changed for long, and nothing will.
                return Ok(None);
            }
            self.tell_why(&task);
        }
    }

    /// Explains a shortage of participants.
    fn tell_why(&self, task: &TaskView) {
        if let Some(behind) = task.behind {
            self.output.event("behind", &behind);
            self.output.line(task::behind(behind));
        }
        if let Some(shortage) = task.shortage {
            self.output.event("shortage", &shortage);
            self.output.line(task::shortage(shortage));
        }
    }

    fn print(&self, round: &RoundView) {
        self.output.event("round", round);
        self.output.line(format!(
            "round {} (attempt {})  {}  cohort {}, reported {}, dropped {}  {}{}",
            round.number,
            round.attempt,
            state(round),
            round.cohort,
            round.reported,
            round.dropped,
            metrics(round),
            base_given_by(round)
        ));
    }
}

fn ended(round: &RoundView) -> Failure {
    Failure::new(Exit::Round, format!("round {} ended {}{}", round.number, state(round), base_given_by(round)))
}

fn reason(task: &TaskView) -> String {
    let detail = task.history.last().and_then(|change| change.detail.as_deref());
    detail.map(|detail| format!(": {detail}")).unwrap_or_default()
}
