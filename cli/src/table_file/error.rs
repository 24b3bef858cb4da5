//! Errors of a table: the place, the problem, and the valid form.

use std::io;
use std::path::PathBuf;

use crate::failure::{Exit, Failure, chain};

/// Most cells of a table.
pub(super) const MAX_CELLS: usize = 1 << 27;

/// Errors of a table's file, or between it and a task.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is larger than 1 GiB, the most that is read", .path.display())]
    TooLarge { path: PathBuf },
    #[error("{} has more than {} cells, the most that is read", .path.display(), MAX_CELLS)]
    TooManyCells { path: PathBuf },
    #[error("{} is empty; its first line must name the columns, separated by commas", .path.display())]
    Empty { path: PathBuf },
    #[error("{} names its columns, and has no row below them; at least one is needed", .path.display())]
    NoRows { path: PathBuf },
    #[error(
        "{}, line 1: the header is one column, `{header}`; columns must be separated by commas, and these seem to be \
         separated by {separator:?}",
        .path.display()
    )]
    Separator { path: PathBuf, header: String, separator: char },
    #[error("{} is a folder; give one file that holds the whole table", .path.display())]
    Folder { path: PathBuf },
    #[error("{} {is}; {right}", .path.display())]
    Other { path: PathBuf, is: &'static str, right: &'static str },
    #[error(
        "{}: two columns are named `{name}`; a column that the task takes must have a name of its own",
        .path.display()
    )]
    SameName { path: PathBuf, name: String },
    #[error("{}, line {line}: has {found} cells, and the header names {expected}: each line must have as many", .path.display())]
    Ragged { path: PathBuf, line: u64, found: usize, expected: usize },
    #[error("{}, {place}: is not UTF-8; save the file as UTF-8", .path.display())]
    NotUtf8 { path: PathBuf, place: String },
    #[error(
        "{}, line {line}: a quote opens a cell and is never closed; close it, or surround the cell with quotes and write \
         each quote within it twice",
        .path.display()
    )]
    Unclosed { path: PathBuf, line: u64 },
    #[error(
        "{}, line {line}: a quote opens a cell, and its closing quote on line {closed} is followed by {by:?}{hint}; a comma or \
         the end of the line must follow, and a quote within a quoted cell is written twice",
        .path.display()
    )]
    AfterQuote { path: PathBuf, line: u64, closed: u64, by: char, hint: String },
    #[error(
        "{}, line {line}: a quote opens a cell and closes on line {end}, and each line of the cell looks like a row; close the \
         quote on its own line, or take the line breaks out of the cell",
        .path.display()
    )]
    Swallowed { path: PathBuf, line: u64, end: u64 },
    #[error("{} is no Parquet file that can be read", .path.display())]
    Parquet { path: PathBuf, source: parquet::errors::ParquetError },
    #[error("{}, column `{column}`: {why}", .path.display())]
    Unreadable { path: PathBuf, column: String, why: String },
    #[error("{}: there is no column `{column}`, which the task takes; its columns are {}", .path.display(), .found.join(", "))]
    Missing { path: PathBuf, column: String, found: Vec<String> },
    #[error("{}, {place}, column `{column}`: {found}; {expected} is expected", .path.display())]
    Cell {
        path: PathBuf,
        /// The row or line.
        place: String,
        column: String,
        found: String,
        expected: String,
    },
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Self {
        Self::new(Exit::Data, chain(&error))
    }
}
