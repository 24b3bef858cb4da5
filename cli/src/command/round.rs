//! `tributary round`: look at rounds, and watch them as they go.

use std::time::Duration;

use wire::inspect::RoundView;
use wire::route;

use crate::failure::Outcome;
use crate::output::{Align, Output, Table, bytes, duration, figure};
use crate::server::{Server, ServerArgs};

mod show;
mod watch;
pub(crate) mod words;

use watch::Watch;
use words::{metrics, state};

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
                Watch::new(server, task, output).run(round).await
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
