//! `tributary task compare`: tasks side by side, what sets them apart and what came of it.

use wire::inspect::{ComparedLine, Comparison};
use wire::route;

use crate::failure::Outcome;
use crate::output::{Output, figure};
use crate::server::{Server, ServerArgs};

/// Arguments of `tributary task compare`.
#[derive(clap::Args)]
pub(crate) struct Compare {
    /// Ids or names of two tasks or more, at most eight
    #[arg(required = true, num_args = 2..=8)]
    tasks: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
}

impl Compare {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let server = Server::new(&self.server)?;
        let bar = output.spinner("reading rounds".to_owned());
        let query: Vec<_> = self.tasks.into_iter().map(|task| ("task", task)).collect();
        let compared: Comparison = server.get(route::COMPARE, &query).await?;
        bar.finish_and_clear();
        output.answer(&compared, || words(&compared));
        Ok(())
    }
}

fn words(compared: &Comparison) -> String {
    let mut lines = vec![row("", &compared.names)];
    section(&mut lines, "Keys that differ", &compared.keys, |value| value.clone());
    section(&mut lines, "Last completed round", &compared.last, |value| figure(*value));
    section(&mut lines, "All rounds", &compared.total, |value| figure(*value));
    lines.join("\n")
}

fn section<T>(lines: &mut Vec<String>, title: &str, of: &[ComparedLine<T>], words: impl Fn(&T) -> String) {
    if of.is_empty() {
        return;
    }
    lines.push(format!("\n{title}"));
    for ComparedLine { name, values } in of {
        let values: Vec<_> = values.iter().map(|value| value.as_ref().map_or_else(|| "-".to_owned(), &words)).collect();
        lines.push(row(name, &values));
    }
}

fn row(name: &str, values: &[String]) -> String {
    let values = values.iter().fold(String::new(), |row, value| format!("{row}  {value:>20}"));
    format!("{name:<40}{values}")
}
