//! Errors of a table: the place, the problem, and the valid form.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::command::CommandFailed;
use crate::failure::{Exit, Failure, chain};

/// Most problems that are kept for people to read.
pub(super) const MAX_PROBLEMS: usize = 10_000;
/// Most numbers that a task keeps of a table: 2 GiB for a model, 4 GiB for an analysis.
pub(super) const MAX_KEPT: usize = 1 << 29;

/// Errors of a table's file, or between it and a task.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum TableError {
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: Arc<io::Error> },
    #[error("{} is larger than 1 GiB, the most that is read", .path.display())]
    TooLarge { path: PathBuf },
    #[error(
        "{} has more than {rows} rows, of each of which the task keeps {width} numbers; it can keep {most} in all: give a table of \
         fewer rows",
        .path.display()
    )]
    TooManyKept { path: PathBuf, width: usize, rows: usize, most: usize },
    #[error("{} {failed}", .path.display())]
    Command { path: PathBuf, failed: CommandFailed },
    #[error(
        "{}, line {line}: the row that begins here has more than 16 MiB or 1048576 cells, the most of a row; a quote that is never \
         closed may open in it",
        .path.display()
    )]
    LongLine { path: PathBuf, line: u64 },
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
    #[error("{} is a folder; give one CSV file that holds the whole table", .path.display())]
    Folder { path: PathBuf },
    #[error("{} is a folder without a file of its own that ends in .parquet", .path.display())]
    NoParts { path: PathBuf },
    #[error("{}: --map names the column `{column}`, which is not there; the file's columns are {}", .path.display(), .found.join(", "))]
    Unmapped { path: PathBuf, column: String, found: Vec<String> },
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
    NotUtf8 { path: PathBuf, place: Place, column: String },
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
    Parquet { path: PathBuf, source: Arc<parquet::errors::ParquetError> },
    #[error("{}, column `{column}`: {why}", .path.display())]
    Unreadable { path: PathBuf, column: String, why: String },
    #[error("{}: there is no column `{column}`, which the task takes; its columns are {}", .path.display(), .found.join(", "))]
    Missing { path: PathBuf, column: String, found: Vec<String> },
    #[error("{}, {place}, column `{column}`: {found}; {expected} is expected", .path.display())]
    Cell { path: PathBuf, place: Place, column: String, found: String, expected: String },
    #[error("{}: {skipped} of {rows} rows cannot be used, and the task allows {allowed} to be left out; the first: {first}", .path.display())]
    TooManySkipped { path: PathBuf, skipped: usize, rows: usize, allowed: String, first: Box<Self> },
    #[error("{}: no row can be used; the first: {first}", .path.display())]
    NoneUsed { path: PathBuf, first: Box<Self> },
}

/// Where a row is, as a person finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Of a file of lines, from 1.
    Line(u64),
    /// Of another file, from 1.
    Row(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Row(row) => write!(f, "row {row}"),
        }
    }
}

impl TableError {
    /// A file that cannot be read.
    pub(super) fn read(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        move |source| Self::Read { path: path.into(), source: Arc::new(source) }
    }

    /// The row and the column that it is about, as far as it is about one.
    pub(crate) fn place(&self) -> (Option<Place>, Option<&str>) {
        match self {
            Self::Cell { place, column, .. } | Self::NotUtf8 { place, column, .. } => (Some(*place), Some(column)),
            Self::Ragged { line, .. }
            | Self::Unclosed { line, .. }
            | Self::AfterQuote { line, .. }
            | Self::Swallowed { line, .. }
            | Self::LongLine { line, .. } => (Some(Place::Line(*line)), None),
            Self::Unreadable { column, .. } | Self::Missing { column, .. } | Self::Unmapped { column, .. } => {
                (None, Some(column))
            }
            Self::SameName { name, .. } => (None, Some(name)),
            Self::Separator { .. } => (Some(Place::Line(1)), None),
            Self::Read { .. }
            | Self::TooLarge { .. }
            | Self::TooManyKept { .. }
            | Self::Command { .. }
            | Self::Empty { .. }
            | Self::NoRows { .. }
            | Self::Folder { .. }
            | Self::NoParts { .. }
            | Self::Other { .. }
            | Self::Parquet { .. }
            | Self::TooManySkipped { .. }
            | Self::NoneUsed { .. } => (None, None),
        }
    }

    /// Whether there is no table at all, rather than one with wrong lines.
    pub(super) fn is_of_file(&self) -> bool {
        self.place().0.is_none()
    }

    /// Whether it is about one row, which can be left out.
    pub(super) fn is_of_row(&self) -> bool {
        matches!(self, Self::Cell { .. } | Self::NotUtf8 { .. } | Self::Ragged { .. })
    }
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Self {
        Self::new(Exit::Data, chain(&error))
    }
}
