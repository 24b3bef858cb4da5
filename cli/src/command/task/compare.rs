//! `tributary task compare`: tasks side by side, what sets them apart and what came of it.

use std::collections::BTreeMap;

use wire::inspect::{RoundView, TaskView};
use wire::{RoundState, TaskId, route};

use crate::failure::{Exit, Failure, Outcome};
use crate::figures::figures;
use crate::output::{Output, figure};
use crate::server::{Server, ServerArgs};
use crate::task_input::keys;

/// Arguments of `tributary task compare`.
#[derive(clap::Args)]
pub(crate) struct Compare {
    /// Ids or names of two tasks or more
    #[arg(required = true, num_args = 2..)]
    tasks: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// One line of the comparison, with an entry for each task; none where a task has no such thing.
#[derive(serde::Serialize)]
struct Line<T> {
    name: String,
    values: Vec<Option<T>>,
}

#[derive(serde::Serialize)]
struct Comparison {
    tasks: Vec<TaskId>,
    names: Vec<String>,
    /// Keys of the task files that are not the same.
    keys: Vec<Line<String>>,
    /// Numbers of the last completed round.
    last: Vec<Line<f64>>,
    /// Sums over all attempts.
    total: Vec<Line<f64>>,
}

/// What is summed over all attempts at rounds.
const SUMMED: [&str; 3] = ["seconds", "bytes_up", "bytes_down"];

impl Compare {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let server = Server::new(&self.server)?;
        let mut tasks = Vec::with_capacity(self.tasks.len());
        for name in &self.tasks {
            let bar = output.spinner(format!("reading rounds of {name}"));
            let task = server.task_view(server.task(name).await?).await?;
            let rounds: Vec<RoundView> =
                server.list(&route::fill(route::ROUNDS, &[&task.summary.id]), usize::MAX).await?;
            bar.finish_and_clear();
            tasks.push((task, rounds));
        }
        let comparison = Comparison::of(&tasks)?;
        output.answer(&comparison, || comparison.words());
        Ok(())
    }
}

impl Comparison {
    fn of(tasks: &[(TaskView, Vec<RoundView>)]) -> Outcome<Self> {
        let specs = tasks.iter().map(|(task, _)| keys(&task.spec)).collect::<Result<Vec<_>, _>>();
        let specs = specs.map_err(Failure::because(Exit::Internal, "a task cannot be written as keys"))?;
        let mut keys = lines(&specs);
        keys.retain(|line| line.values.iter().any(|value| *value != line.values[0]));
        let last: Vec<BTreeMap<_, _>> = tasks
            .iter()
            .map(|(_, rounds)| {
                let completed = rounds.iter().filter(|round| round.state == RoundState::Completed);
                completed.max_by_key(|round| round.number).map(figures).unwrap_or_default().into_iter().collect()
            })
            .collect();
        let total: Vec<BTreeMap<_, _>> = tasks.iter().map(|(_, rounds)| totals(rounds)).collect();
        Ok(Self {
            tasks: tasks.iter().map(|(task, _)| task.summary.id).collect(),
            names: tasks.iter().map(|(task, _)| task.summary.name.clone()).collect(),
            keys,
            last: lines(&last),
            total: lines(&total),
        })
    }

    fn words(&self) -> String {
        let mut lines = vec![row("", &self.names)];
        section(&mut lines, "Keys that differ", &self.keys, |value| value.clone());
        section(&mut lines, "Last completed round", &self.last, |value| figure(*value));
        section(&mut lines, "All attempts", &self.total, |value| figure(*value));
        lines.join("\n")
    }
}

fn totals(rounds: &[RoundView]) -> BTreeMap<String, f64> {
    let mut totals = BTreeMap::from([("completed rounds".to_owned(), 0.0), ("failed attempts".to_owned(), 0.0)]);
    for round in rounds {
        let mut add = |name: &str, value| *totals.entry(name.to_owned()).or_default() += value;
        match round.state {
            RoundState::Completed => add("completed rounds", 1.0),
            RoundState::Failed => add("failed attempts", 1.0),
            RoundState::Cancelled
            | RoundState::Selecting
            | RoundState::Sharing
            | RoundState::Collecting
            | RoundState::Confirming
            | RoundState::Unmasking
            | RoundState::Aggregating => {}
        }
        let all = figures(round);
        all.iter().filter(|(name, _)| SUMMED.contains(&name.as_str())).for_each(|(name, value)| add(name, *value));
    }
    totals
}

/// A line for each name that some task has.
fn lines<T: Clone>(tasks: &[BTreeMap<String, T>]) -> Vec<Line<T>> {
    let names: std::collections::BTreeSet<_> = tasks.iter().flat_map(BTreeMap::keys).collect();
    let line =
        |name: &String| Line { name: name.clone(), values: tasks.iter().map(|of| of.get(name).cloned()).collect() };
    names.into_iter().map(line).collect()
}

fn section<T>(lines: &mut Vec<String>, title: &str, of: &[Line<T>], words: impl Fn(&T) -> String) {
    if of.is_empty() {
        return;
    }
    lines.push(format!("\n{title}"));
    for Line { name, values } in of {
        let values: Vec<_> = values.iter().map(|value| value.as_ref().map_or_else(|| "-".to_owned(), &words)).collect();
        lines.push(row(name, &values));
    }
}

fn row(name: &str, values: &[String]) -> String {
    let values = values.iter().fold(String::new(), |row, value| format!("{row}  {value:>20}"));
    format!("{name:<40}{values}")
}
