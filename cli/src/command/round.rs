//! `tributary round`: look at rounds, and watch them as they go.

use std::time::Duration;

use wire::inspect::RoundView;
use wire::{RoundState, Timestamp, route};

use crate::arguments::one_of;
use crate::failure::Outcome;
use crate::output::{Cells, Output, Table, bytes, duration, figure};
use crate::server::{PartArgs, ServerArgs, given, listed, none_of};

mod bar;
mod compare;
mod devices;
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
        /// Only rounds in these states, separated by commas
        #[arg(long, value_name = "STATE", value_delimiter = ',')]
        #[arg(value_parser = one_of(RoundState::ALL, RoundState::as_str))]
        state: Vec<RoundState>,
        /// Only rounds whose latest attempt began at or after this time: RFC 3339 or milliseconds since 1970
        #[arg(long, value_name = "TIME", value_parser = coordinator::parse_time)]
        since: Option<Timestamp>,
        /// Only rounds that this device summed or unmasked
        #[arg(long, value_name = "NAME")]
        device: Option<String>,
        #[command(flatten)]
        part: PartArgs,
    },
    /// Show the phases, participants and result of a round
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
    /// Compare duration, participants and results of rounds of a task
    Compare(compare::Compare),
    /// Print state changes until the round, or without a round the task, ends
    Watch {
        /// Id or name of the task
        task: String,
        /// Round number [default: from the current round to the last]
        round: Option<u32>,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// List the devices that summed rounds, their coordinators and the reasons for their selection
    Devices(devices::Devices),
}

impl RoundCommand {
    /// Whether the command prints events.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::Watch { .. })
    }

    pub(crate) async fn run(self, output: Output) -> Outcome {
        match self {
            Self::List { task, state, since, device, part } => {
                let server = part.server.client()?;
                let task = server.task(&task).await?;
                let since = since.map(|since| since.0.to_string());
                let narrow = given([("state", listed(&state)), ("since", since), ("device", device)]);
                let rounds = route::fill(route::ROUNDS, &[&task]);
                let part = server.part::<RoundView>(&rounds, &narrow, part).await?;
                let nothing = none_of(&narrow, "There are no rounds yet.");
                output.answer_list(&part, |rounds, terminal| table(rounds, terminal, nothing));
                Ok(())
            }
            Self::Show { task, round, attempt, server } => {
                let server = server.client()?;
                let task = server.task(&task).await?;
                show::show(&server, task, round, attempt, output).await
            }
            Self::Compare(compare) => compare.run(output).await,
            Self::Watch { task, round, server } => {
                let server = server.client()?;
                let task = server.task(&task).await?;
                Watch::new(server, task, output).run(round).await
            }
            Self::Devices(devices) => devices.run(output).await,
        }
    }
}

fn table(rounds: &[RoundView], terminal: Option<usize>, nothing: &str) -> String {
    let mut table = Table::new(&[
        ("ROUND", Cells::Number),
        ("ATTEMPT", Cells::Number),
        ("STATE", Cells::Text),
        ("COHORT", Cells::Number),
        ("REPORTED", Cells::Number),
        ("DROPPED", Cells::Number),
        ("UP", Cells::Number),
        ("DOWN", Cells::Number),
        ("TIME", Cells::Number),
        ("EPSILON", Cells::Number),
        ("METRICS", Cells::Words),
    ])
    .dispensable(&["DOWN", "UP", "ATTEMPT", "COHORT"]);
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
    table.render(terminal, nothing)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::fits_eighty;

    #[test]
    fn a_list_of_rounds_fits_eighty_columns() {
        let round = |number: u32, ended: serde_json::Value| -> RoundView {
            let mut round = json!({
                "task": "01934c2e-7d3a-7b1c-9f00-0123456789ab", "number": number, "attempt": 1, "phases": [], "cohort": 1000,
                "reported": 990, "dropped": 10, "dropped_why": {}, "bytes_up": 663_000_000, "bytes_down": 663_000_000,
                "metrics": { "eval_accuracy": { "value": 0.912, "count": 10 }, "train_loss": { "value": 0.53, "count": 10 } },
                "base": { "version": 7, "sha256": "0".repeat(64) }, "opened_at": 0, "seconds": 245.0,
            });
            round.as_object_mut().unwrap().extend(ended.as_object().unwrap().clone());
            serde_json::from_value(round).unwrap()
        };
        let completed = round(1000, json!({ "state": "COMPLETED" }));
        let drawn = table(std::slice::from_ref(&completed), Some(80), "");
        assert!(fits_eighty(&drawn), "{drawn}");
        assert!(
            ["eval_accuracy", "0.912", "4 min 05 s", "REPORTED"].iter().all(|words| drawn.contains(words)),
            "{drawn}"
        );
        let failed = round(999, json!({ "state": "FAILED", "failure": "too_few_participants" }));
        let drawn = table(&[completed, failed], Some(80), "");
        assert!(fits_eighty(&drawn), "{drawn}");
        assert!(drawn.contains("FAILED(too_few_participants)") && drawn.contains("train_loss 0.53"), "{drawn}");
    }
}
