//! `tributary silo report`.

use std::path::PathBuf;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cells, Output, Table, figure};
use crate::silo::report::report;

/// Arguments of `tributary silo report`.
#[derive(clap::Args)]
pub(crate) struct ReportArgs {
    /// Output of `participant run --format json`, or a job's progress.jsonl
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

impl ReportArgs {
    pub(super) fn run(self, output: Output) -> Outcome {
        let mut text = String::new();
        for file in &self.files {
            let read = std::fs::read_to_string(file);
            text += &read.map_err(Failure::because(Exit::Data, format!("cannot read {}", file.display())))?;
            text.push('\n');
        }
        let found = report(&text);
        if found.lines == 0 {
            let detail = "no line of progress in these files; `participant run --trainer … --format json >FILE` writes them, \
                          if the program calls job.progress or writes progress.jsonl";
            return Err(Failure::new(Exit::Data, detail));
        }
        output.answer(&found, || {
            let columns = [
                ("processes", Cells::Number),
                ("figure", Cells::Text),
                ("lines", Cells::Number),
                ("mean", Cells::Number),
                ("min", Cells::Number),
                ("max", Cells::Number),
                ("deviation", Cells::Number),
            ];
            let mut table = Table::new(&columns).dispensable(&["deviation", "lines"]);
            for (processes, group) in &found.by_processes {
                let processes = if *processes == 0 { "?".to_owned() } else { processes.to_string() };
                for (name, spread) in group.figures() {
                    let Some(spread) = spread else { continue };
                    let numbers = [spread.mean, spread.min, spread.max, spread.deviation].map(figure);
                    let mut row = vec![processes.clone(), name.to_owned(), spread.count.to_string()];
                    row.extend(numbers);
                    table.row(row);
                }
                if let Some(efficiency) = group.efficiency {
                    table.row(vec![processes, "scaling efficiency".to_owned(), String::new(), figure(efficiency)]);
                }
            }
            table.render(output.width(), "the lines of progress say nothing but steps and losses")
        });
        Ok(())
    }
}
