//! `tributary participant check`: what a task makes of a table, before the participant enrols.

use std::path::{Path, PathBuf};

use learning::AnalyticsSpec;
use serde_json::json;
use task_spec::{Deployment, SpecError, TaskSpec};

use crate::data::MapArgs;
use crate::failure::{Exit, Failure, Outcome, chain};
use crate::output::{Cells, Output, Table, figure, number};
use crate::table_file::{ColumnReport, FORMS, Keep, Place, Report, TableError, TablePath, Wanted};
use crate::task_file;

/// Arguments of `tributary participant check`.
#[derive(clap::Args)]
pub(crate) struct Check {
    /// The task: its file, or the URL of its file
    #[arg(long, value_name = "FILE|URL")]
    task: String,
    /// Your table: csv:FILE (also compressed with gzip), parquet:FILE (or a folder of Parquet files) or 'command:COMMAND LINE', a
    /// shell command that prints CSV
    #[arg(long, value_name = "DATA", value_parser = table)]
    data: TablePath,
    #[command(flatten)]
    map: MapArgs,
    /// Maximum number of problems to show
    #[arg(long, value_name = "N", default_value_t = 1000)]
    most: usize,
    /// PEM file of the CA that signed the certificate of the URL's server [default: the system's CAs]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

fn table(text: &str) -> Result<TablePath, String> {
    text.parse().map_err(|()| format!("a table is given as {FORMS}"))
}

impl Check {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let spec = self.spec().await?;
        self.check_task(&spec)?;
        let wanted = Wanted::of_task(&spec).ok_or_else(|| {
            task_file::wrong(Path::new(&self.task), "names no columns of a table; a task for tables has model.table")
        })?;
        let table = self.map.of(&self.data).open();
        let (fitted, report) = match table.and_then(|table| table.fit(&wanted, Keep::Nothing)) {
            Ok(fitted) => fitted,
            Err(error) => {
                tell(output, &error);
                return Err(Failure::new(Exit::Data, "the table cannot be read: see above"));
            }
        };
        report.problems.iter().take(self.most).for_each(|problem| tell(output, problem));
        if report.count > self.most.min(report.problems.len()) {
            output.line(format!("… and {} problems more", report.count - self.most.min(report.problems.len())));
        }
        output.event("checked", &report);
        output.line(columns(&report, output.width()));
        output.line(report.words());
        match report.verdict() {
            Some(error) => Err(error.into()),
            None => fitted.accepted().map_err(Failure::because(Exit::Data, "the analysis does not take these rows")),
        }
    }

    /// Rejects a task whose table, model or analysis no coordinator accepts.
    fn check_task(&self, spec: &TaskSpec) -> Outcome {
        let path = Path::new(&self.task);
        // Other deployments have other intervals, which do not matter to a table.
        let problems = spec.check(&Deployment { poll_interval_ms: 1 }).err().unwrap_or_default();
        let about_data =
            |problem: &&SpecError| problem.field.starts_with("model") || problem.field.starts_with("analytics");
        if let Some(problem) = problems.iter().find(about_data) {
            return Err(task_file::wrong(path, problem));
        }
        let analysis = spec.analytics.as_ref().map(AnalyticsSpec::read).transpose();
        analysis.map(drop).map_err(|error| task_file::wrong(path, format!("analytics {}", chain(&error))))
    }

    async fn spec(&self) -> Outcome<TaskSpec> {
        if self.task.starts_with("https://") || self.task.starts_with("http://") {
            task_file::download(&self.task, self.ca.as_deref()).await
        } else {
            task_file::read(Path::new(&self.task))
        }
    }
}

/// Prints a problem, for programs with its place.
fn tell(output: Output, problem: &TableError) {
    let detail = chain(problem);
    let (place, column) = problem.place();
    let (line, row) = match place {
        Some(Place::Line(line)) => (Some(line), None),
        Some(Place::Row(row)) => (None, Some(row)),
        None => (None, None),
    };
    output.event("problem", &json!({ "line": line, "row": row, "column": column, "detail": detail }));
    output.line(detail);
}

/// The columns of the task, and what the table has of each.
fn columns(report: &Report, width: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("COLUMN", Cells::Text),
        ("FOUND", Cells::Words),
        ("TASK", Cells::Text),
        ("EMPTY", Cells::Number),
        ("FILLED IN", Cells::Number),
        ("OUTSIDE", Cells::Number),
        ("UNLISTED", Cells::Number),
    ]);
    for column in &report.columns {
        let label = if column.is_label { " (label)" } else { "" };
        table.row(vec![
            format!("{}{label}", column.column),
            found(column),
            column.range.map_or_else(String::new, |(low, high)| format!("{low} to {high}")),
            number(column.empty as u64),
            number(column.imputed as u64),
            number(column.outside as u64),
            number(column.unlisted as u64),
        ]);
    }
    table.render(width, "")
}

/// Most words of a column that are shown.
const SHOWN: usize = 8;

fn found(column: &ColumnReport) -> String {
    let share = |count: usize| 100.0 * count as f64 / column.words.values().sum::<usize>().max(1) as f64;
    let mut words: Vec<_> = column.words.iter().filter(|(_, count)| **count > 0 || column.is_label).collect();
    words.sort_by(|one, other| other.1.cmp(one.1));
    let more = words.len().saturating_sub(SHOWN);
    let mut text: Vec<_> =
        words.into_iter().take(SHOWN).map(|(word, &count)| format!("{word} {:.1} %", share(count))).collect();
    if more > 0 {
        text.push(format!("{more} more"));
    }
    if let Some((low, high)) = column.found {
        text.push(format!("{} to {}", figure(low), figure(high)));
    }
    text.join(", ")
}
