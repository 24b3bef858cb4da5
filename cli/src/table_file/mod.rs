//! A participant's own table, from a CSV or Parquet file, for tasks that name its columns (`model.table`).
//!
//! The file is read once, at the start, and kept as it is; what a task makes of it is decided when the task is known
//! ([`fit`]), so that one file serves tasks with other columns. Cells are shown in messages on this machine alone.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

mod csv;
mod error;
mod fit;
mod parquet;
mod trainer;

pub(crate) use error::TableError;
pub(crate) use trainer::{FileTrainer, Misfit};

/// Largest file that is read.
const MAX_BYTES: u64 = 1 << 30;
/// Most cells of a table.
const MAX_CELLS: usize = 1 << 27;

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Csv,
    Parquet,
}

/// Where a table is: `csv:FILE` or `parquet:FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TablePath {
    format: Format,
    path: PathBuf,
}

impl FromStr for TablePath {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (format, path) = text.split_once(':').ok_or(())?;
        let format = match format {
            "csv" => Format::Csv,
            "parquet" => Format::Parquet,
            _ => return Err(()),
        };
        if path.is_empty() { Err(()) } else { Ok(Self { format, path: path.into() }) }
    }
}

impl TablePath {
    /// Reads the table.
    ///
    /// # Errors
    /// What is wrong with the file, and where.
    pub(crate) fn read(&self) -> Result<TableFile, TableError> {
        let table = match self.format {
            Format::Csv => csv::read(&self.path)?,
            Format::Parquet => parquet::read(&self.path)?,
        };
        if table.rows == 0 {
            return Err(TableError::NoRows { path: self.path.clone() });
        }
        Ok(table)
    }
}

/// A table as it was read: every row has a cell in every column.
pub(crate) struct TableFile {
    path: PathBuf,
    columns: Vec<(String, Column)>,
    rows: usize,
    /// Of a file of lines, where each row begins.
    lines: Option<Vec<u64>>,
}

/// Shows sizes only.
impl fmt::Debug for TableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableFile({} rows of {} columns)", self.rows, self.columns.len())
    }
}

/// The cells of a column.
enum Column {
    Numbers(Vec<Option<f64>>),
    Words(Words),
}

/// Texts, one after the other; an empty one is a cell without anything.
#[derive(Default)]
struct Words {
    text: String,
    ends: Vec<usize>,
}

/// What is in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell<'a> {
    Empty,
    Number(f64),
    Word(&'a str),
}

impl Words {
    fn push(&mut self, word: &str) {
        self.text.push_str(word);
        self.ends.push(self.text.len());
    }

    fn get(&self, row: usize) -> &str {
        let begin = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin..self.ends[row]]
    }
}

impl Column {
    fn cell(&self, row: usize) -> Cell<'_> {
        match self {
            Self::Numbers(numbers) => numbers[row].map_or(Cell::Empty, Cell::Number),
            Self::Words(words) => match words.get(row) {
                "" => Cell::Empty,
                word => Cell::Word(word),
            },
        }
    }
}

impl TableFile {
    /// Number of rows, at least 1.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Where a row is, as a person finds it.
    fn place(&self, row: usize) -> String {
        match self.lines.as_ref().and_then(|lines| lines.get(row)) {
            Some(line) => format!("line {line}"),
            None => format!("row {}", row + 1),
        }
    }

    fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|(name, _)| name.as_str()).collect()
    }
}

/// Checks the names of the columns.
fn check_names<'a>(path: &Path, names: impl Iterator<Item = &'a str>) -> Result<(), TableError> {
    let mut seen = std::collections::BTreeSet::new();
    for (index, name) in names.enumerate() {
        if name.is_empty() {
            return Err(TableError::NoName { path: path.into(), column: index + 1 });
        }
        if !seen.insert(name) {
            return Err(TableError::SameName { path: path.into(), name: name.to_owned() });
        }
    }
    Ok(())
}

/// Bounds what is kept of a table.
fn check_cells(path: &Path, rows: usize, columns: usize) -> Result<(), TableError> {
    if rows.saturating_mul(columns) > MAX_CELLS { Err(TableError::TooManyCells { path: path.into() }) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
