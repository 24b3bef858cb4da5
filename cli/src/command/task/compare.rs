//! `tributary task compare`: tasks side by side, what sets them apart and what came of it.

use wire::inspect::{ComparedLine, Comparison};
use wire::route;

use crate::failure::Outcome;
use crate::output::{Cells, Output, Table, figure};
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
        output.answer(&compared, || words(&compared, output.width()));
        Ok(())
    }
}

fn words(compared: &Comparison, terminal: Option<usize>) -> String {
    let names = compared.names.iter().map(|name| (name.as_str(), Cells::Text));
    let columns: Vec<_> = std::iter::once(("", Cells::Text)).chain(names).collect();
    let mut table = Table::new(&columns);
    section(&mut table, "Keys that differ", &compared.keys, |value| value.clone());
    section(&mut table, "Last completed round", &compared.last, |value| figure(*value));
    section(&mut table, "All rounds", &compared.total, |value| figure(*value));
    table.render(terminal, "They have the same keys, and no rounds yet.")
}

fn section<T>(table: &mut Table, title: &str, of: &[ComparedLine<T>], words: impl Fn(&T) -> String) {
    if of.is_empty() {
        return;
    }
    table.row(Vec::new());
    table.row(vec![title.to_owned()]);
    for ComparedLine { name, values } in of {
        let values = values.iter().map(|value| value.as_ref().map_or_else(|| "-".to_owned(), &words));
        table.row(std::iter::once(name.clone()).chain(values).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fits_eighty;

    #[test]
    fn tasks_are_side_by_side_in_eighty_columns() {
        let mut table = Table::new(&[("", Cells::Text), ("first", Cells::Text), ("second", Cells::Text)]);
        let line =
            |name: &str, values: [Option<f64>; 2]| ComparedLine { name: name.to_owned(), values: values.to_vec() };
        section(&mut table, "All rounds", &[line("seconds", [Some(1.5), None])], |value| figure(*value));
        section(&mut table, "Nothing", &[], |value: &f64| figure(*value));
        let said = "            first  second\n\nAll rounds\nseconds     1.5    -\n";
        assert_eq!(table.render(None, ""), said);
        let mut table = Table::new(&[("", Cells::Text), ("first", Cells::Text), ("second", Cells::Text)]);
        let long = ComparedLine { name: "k".repeat(40), values: vec![Some("v".repeat(60)), Some("w".repeat(60))] };
        section(&mut table, "Keys that differ", &[long], |value: &String| value.clone());
        assert!(fits_eighty(&table.render(Some(80), "")), "{}", table.render(Some(80), ""));
    }
}
