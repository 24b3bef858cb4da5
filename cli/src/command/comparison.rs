//! Prints a comparison of tasks or rounds as a table.

use std::time::Duration;

use wire::inspect::{ComparedLine, Comparison};

use crate::output::{Cells, Table, bytes, duration, figure};

/// A table with a column for each task or round. `last`: heading of the numbers of the compared rounds. `nothing`:
/// printed for an empty table.
pub(super) fn side_by_side(compared: &Comparison, last: &str, nothing: &str, terminal: Option<usize>) -> String {
    let names = compared.names.iter().map(|name| (name.as_str(), Cells::Text));
    let columns: Vec<_> = std::iter::once(("", Cells::Text)).chain(names).collect();
    let mut table = Table::new(&columns);
    section(&mut table, "Keys that differ", &compared.keys, |_, value| value.clone());
    section(&mut table, last, &compared.last, |name, value| with_unit(name, *value));
    section(&mut table, "All rounds", &compared.total, |name, value| with_unit(name, *value));
    table.render(terminal, nothing)
}

fn section<T>(table: &mut Table, title: &str, of: &[ComparedLine<T>], words: impl Fn(&str, &T) -> String) {
    if of.is_empty() {
        return;
    }
    table.row(Vec::new());
    table.row(vec![title.to_owned()]);
    for ComparedLine { name, values } in of {
        let values =
            values.iter().map(|value| value.as_ref().map_or_else(|| "-".to_owned(), |value| words(name, value)));
        table.row(std::iter::once(name.clone()).chain(values).collect());
    }
}

/// A number in the unit that its name ends with: `phases.COLLECTING.seconds`, `bytes_up`.
fn with_unit(name: &str, value: f64) -> String {
    match name.rsplit('.').next() {
        Some("seconds") => Duration::try_from_secs_f64(value).map_or_else(|_| figure(value), duration),
        Some("bytes_up" | "bytes_down") => bytes(whole(value)),
        Some(_) | None => figure(value),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of bytes: whole, and 0 or more")]
fn whole(count: f64) -> u64 {
    count as u64
}

#[cfg(test)]
mod tests {
    use wire::TaskId;

    use super::*;
    use crate::output::fits_eighty;

    fn compared(names: [&str; 2]) -> Comparison {
        let task: TaskId = "01934c2e-7d3a-7b1c-9f00-0123456789ab".parse().unwrap();
        Comparison { tasks: vec![task; 2], names: names.map(str::to_owned).to_vec(), ..Comparison::default() }
    }

    fn line<T>(name: &str, values: [Option<T>; 2]) -> ComparedLine<T> {
        ComparedLine { name: name.to_owned(), values: values.into() }
    }

    #[test]
    fn rounds_are_side_by_side_with_their_units() {
        let last = vec![
            line("bytes_up", [Some(663_000.0), Some(0.0)]),
            line("cohort", [Some(10.0), Some(12.0)]),
            line("metrics.seconds.value", [Some(0.25), None]),
            line("phases.COLLECTING.seconds", [Some(1.5), Some(245.0)]),
        ];
        let rounds = Comparison { last, ..compared(["digits/1/1", "digits/2/1"]) };
        let said = "                           digits/1/1  digits/2/1\n\
                    \n\
                    Numbers\n\
                    bytes_up                   663 kB      0 B\n\
                    cohort                     10          12\n\
                    metrics.seconds.value      0.25        -\n\
                    phases.COLLECTING.seconds  1.50 s      4 min 05 s\n";
        assert_eq!(side_by_side(&rounds, "Numbers", "", None), said);
        assert!(fits_eighty(&side_by_side(&rounds, "Numbers", "", Some(80))));
    }

    #[test]
    fn tasks_are_side_by_side_in_eighty_columns() {
        let keys = vec![line("k".repeat(40).as_str(), ["v", "w"].map(|value| Some(value.repeat(60))))];
        let total = vec![line("seconds", [Some(12_000.0), None])];
        let tasks = Comparison { keys, total, ..compared(["first", "second"]) };
        let said = side_by_side(&tasks, "Last completed round", "", Some(80));
        assert!(fits_eighty(&said), "{said}");
        assert!(said.contains("Keys that differ") && said.contains("3 h 20 min"), "{said}");
        assert!(!said.contains("Last completed round"), "there is none: {said}");
        assert_eq!(side_by_side(&compared(["first", "second"]), "", "They are the same.", None), "They are the same.");
    }
}
