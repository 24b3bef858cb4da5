//! The cells of a table, as they were read.

use std::fmt;
use std::path::{Path, PathBuf};

use super::error::{MAX_CELLS, TableError};

/// Largest file that is read.
pub(super) const MAX_BYTES: u64 = 1 << 30;

/// A table as it was read: every row has a cell in every column.
pub(crate) struct TableFile {
    pub(super) path: PathBuf,
    pub(super) columns: Vec<(String, Column)>,
    pub(super) rows: usize,
    /// Of a file of lines, where each row begins.
    pub(super) lines: Option<Vec<u64>>,
}

/// Shows sizes only.
impl fmt::Debug for TableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableFile({} rows of {} columns)", self.rows, self.columns.len())
    }
}

/// The cells of a column.
pub(super) enum Column {
    Numbers(Vec<Option<f64>>),
    Words(Words),
}

/// Texts, one after the other; an empty one is a cell without anything.
#[derive(Default)]
pub(super) struct Words {
    text: String,
    ends: Vec<usize>,
}

/// What is in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    Empty,
    Number(f64),
    Word(&'a str),
}

impl Words {
    /// Cells without anything.
    pub(super) fn empty(count: usize) -> Self {
        Self { text: String::new(), ends: vec![0; count] }
    }

    pub(super) fn push(&mut self, word: &str) {
        self.text.push_str(word);
        self.ends.push(self.text.len());
    }

    fn get(&self, row: usize) -> &str {
        let begin = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin..self.ends[row]]
    }
}

impl Column {
    pub(super) fn cell(&self, row: usize) -> Cell<'_> {
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
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Where a row is, as a person finds it.
    pub(super) fn place(&self, row: usize) -> String {
        match self.lines.as_ref().and_then(|lines| lines.get(row)) {
            Some(line) => format!("line {line}"),
            None => format!("row {}", row + 1),
        }
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|(name, _)| name.as_str()).collect()
    }
}

/// Checks the names of the columns.
pub(super) fn check_names<'a>(path: &Path, names: impl Iterator<Item = &'a str>) -> Result<(), TableError> {
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
pub(super) fn check_cells(path: &Path, rows: usize, columns: usize) -> Result<(), TableError> {
    if rows.saturating_mul(columns) > MAX_CELLS { Err(TableError::TooManyCells { path: path.into() }) } else { Ok(()) }
}
