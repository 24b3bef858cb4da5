//! A table whose rows appear one by one, so that its columns are as wide as they were made.

use super::escape;
use super::table::{Cells, GAP};
use super::width::{to_left, to_right};

/// A heading, the width of its column, and the type of its cells.
pub(crate) type Column = (&'static str, usize, Cells);

/// Draws lines of the same columns.
pub(crate) struct GrowingTable {
    columns: &'static [Column],
    left_out: &'static [&'static str],
}

impl GrowingTable {
    /// For a terminal with so many columns; `None` shows all of the table's. `dispensable`: columns that are left out
    /// first on a terminal that is narrower than a row.
    pub(crate) fn new(
        columns: &'static [Column],
        dispensable: &'static [&'static str],
        terminal: Option<usize>,
    ) -> Self {
        let width =
            |heading: &str| columns.iter().find(|(own, ..)| *own == heading).map_or(0, |(_, width, _)| width + GAP);
        let all = columns.iter().map(|(_, width, _)| width + GAP).sum::<usize>().saturating_sub(GAP);
        let missing = terminal.map_or(0, |terminal| all.saturating_sub(terminal));
        let mut freed = 0;
        let needed = dispensable.iter().take_while(|heading| {
            let is_needed = freed < missing;
            freed += width(heading);
            is_needed
        });
        let left_out = &dispensable[..needed.count()];
        Self { columns, left_out }
    }

    /// The line of headings as the columns name them.
    #[cfg(test)]
    pub(crate) fn headings(&self) -> String {
        let headings: Vec<String> = self.columns.iter().map(|(heading, ..)| (*heading).to_owned()).collect();
        self.line(&headings)
    }

    /// The line of a row; a cell that is wider than its column pushes the next ones.
    pub(crate) fn line(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (cell, (heading, width, kind)) in cells.iter().zip(self.columns) {
            if self.left_out.contains(heading) {
                continue;
            }
            let cell = escape::line(cell);
            line.push_str(&match kind {
                Cells::Number => to_right(&cell, *width) + "  ",
                Cells::Text | Cells::Key | Cells::Words => to_left(&cell, *width) + "  ",
            });
        }
        line.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [("ROUND", 5, Cells::Number), ("STATE", 9, Cells::Text), ("UP", 8, Cells::Number)];

    #[test]
    fn columns_are_left_out_in_their_order_as_far_as_needed() {
        let table = |terminal| GrowingTable::new(&COLUMNS, &["UP", "ROUND"], terminal);
        // 5 + 9 + 8, and two gaps.
        for whole in [None, Some(26), Some(100)] {
            assert_eq!(table(whole).headings(), "ROUND  STATE            UP", "{whole:?}");
        }
        assert_eq!(table(Some(25)).headings(), "ROUND  STATE");
        assert_eq!(table(Some(16)).headings(), "ROUND  STATE");
        assert_eq!(table(Some(15)).headings(), "STATE");
        let cells = ["7", "COMPLETED", "1.2 MB"].map(str::to_owned);
        assert_eq!(table(None).line(&cells), "    7  COMPLETED    1.2 MB");
        assert_eq!(table(Some(20)).line(&cells), "    7  COMPLETED");
        assert_eq!(table(None).line(&["7", "病院", "9"].map(str::to_owned)), "    7  病院              9");
    }
}
