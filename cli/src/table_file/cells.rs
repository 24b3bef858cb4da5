//! The cells of a table, and the interface between its readers and their users.

use std::path::Path;

use super::error::{Place, TableError};

/// Value of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    Empty,
    Number(f64),
    Word(&'a str),
    NotUtf8,
}

impl<'a> Cell<'a> {
    /// The cell of a text file.
    pub(super) fn of_text(text: &'a [u8]) -> Self {
        match std::str::from_utf8(text).map(str::trim) {
            Ok("") => Self::Empty,
            Ok(word) => Self::Word(word),
            Err(_) => Self::NotUtf8,
        }
    }
}

/// A column's name, or why the column cannot be read, which matters only to a task that takes it.
pub(super) type ColumnName = (String, Result<(), String>);

/// The names of the columns that have one.
pub(super) fn names(columns: &[ColumnName]) -> Vec<&str> {
    columns.iter().map(|(name, _)| name.as_str()).filter(|name| !name.is_empty()).collect()
}

/// Receives a table while it is read. A reader returns the first error at once.
pub(super) trait RowSink {
    /// Selects columns by their positions. Called once, before all rows.
    fn select(&mut self, columns: &[ColumnName]) -> Vec<usize>;

    /// Takes a row of a file; `cell` returns the cell in the selected column at a position of [`Self::select`]'s list.
    fn row<'a>(&mut self, file: &Path, place: Place, cell: impl Fn(usize) -> Cell<'a>) -> Result<(), TableError>;

    /// Takes the description of a line that is not a row.
    fn fault(&mut self, fault: TableError);

    /// A selected column cannot be read any further; [`Self::row`] must not ask for its cells again.
    fn lose(&mut self, column: usize, why: String);
}
