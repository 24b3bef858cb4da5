//! `tributary export`: rounds and metrics of tasks, in the formats of other tools.
//!
//! Numbers have the names of `figures`; the files here only write them down.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use wire::grammar::counted;
use wire::inspect::RoundView;
use wire::{TaskId, route};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::server::{Server, ServerArgs};

mod csv;
mod mlflow;
mod parquet;
mod records;
mod tensorboard;

use records::{Records, TaskRounds};

/// Formats of other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ExportFormat {
    /// A table of text, with a heading
    Csv,
    /// A table with types, for data frames
    Parquet,
    /// Event files, one folder a task: `tensorboard --logdir OUT`
    Tensorboard,
    /// MLflow's file layout, one run a task. MLflow 3 imports it: `mlflow migrate-filestore --source OUT --target sqlite:///mlflow.db`
    Mlflow,
}

/// Arguments of `tributary export`.
#[derive(clap::Args)]
pub(crate) struct Export {
    /// Ids or names of the tasks
    #[arg(required = true)]
    tasks: Vec<String>,
    /// Format of the export
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    tool: ExportFormat,
    /// File of csv and parquet, which must not exist; folder of tensorboard and mlflow, where a task's earlier export is replaced
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(serde::Serialize)]
struct Exported<'a> {
    path: &'a Path,
    tasks: usize,
    rounds: usize,
}

/// Every attempt at the task's rounds, in order; the list has the latest of each.
async fn attempts(server: &Server, task: TaskId) -> Outcome<Vec<RoundView>> {
    let latest: Vec<RoundView> = server.list(&route::fill(route::ROUNDS, &[&task]), usize::MAX).await?;
    let mut rounds = Vec::with_capacity(latest.len());
    for round in latest.into_iter().rev() {
        for attempt in 1..round.attempt {
            let earlier = [("attempt", attempt.to_string())];
            rounds.push(server.get(&route::fill(route::ROUND, &[&task, &round.number]), &earlier).await?);
        }
        rounds.push(round);
    }
    Ok(rounds)
}

impl Export {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let server = self.server.client()?;
        let mut tasks = Vec::with_capacity(self.tasks.len());
        for name in &self.tasks {
            let bar = output.spinner(format!("reading rounds of {name}"));
            let task = server.task_view(server.task(name).await?).await?;
            let rounds = attempts(&server, task.summary.id).await?;
            bar.finish_and_clear();
            tasks.push(TaskRounds { task, rounds });
        }
        self.write(&tasks).map_err(Failure::because(Exit::Io, format!("cannot write {}", self.out.display())))?;
        let rounds = tasks.iter().map(|task| task.rounds.len()).sum();
        let exported = Exported { path: &self.out, tasks: tasks.len(), rounds };
        output.answer(&exported, || {
            let (rounds, tasks) = (rounds as u64, tasks.len() as u64);
            let rounds = counted(rounds, "round", "rounds");
            format!("{} has {rounds} of {}", self.out.display(), counted(tasks, "task", "tasks"))
        });
        Ok(())
    }

    fn write(&self, tasks: &[TaskRounds]) -> io::Result<()> {
        match self.tool {
            ExportFormat::Csv => csv::write(&Records::of(tasks), fs::File::create_new(&self.out)?),
            ExportFormat::Parquet => parquet::write(&Records::of(tasks), fs::File::create_new(&self.out)?),
            ExportFormat::Tensorboard => tasks.iter().try_for_each(|task| tensorboard::write(task, &self.out)),
            ExportFormat::Mlflow => tasks.iter().try_for_each(|task| mlflow::write(task, &self.out)),
        }
    }
}

#[cfg(test)]
mod tests;
