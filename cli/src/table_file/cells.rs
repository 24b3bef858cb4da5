//! The cells of a table, as they were read.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::error::{MAX_CELLS, Place, TableError};
use super::listed::listed;

/// Largest file that is read.
pub(super) const MAX_BYTES: u64 = 1 << 30;

/// A table as it was read: every row has a cell in every column.
pub(crate) struct TableFile {
    pub(super) path: PathBuf,
    /// Each with its name, if it has one; or why it cannot be read, which matters only to a task that takes it.
    pub(super) columns: Vec<(String, Result<Column, String>)>,
    pub(super) rows: usize,
    pub(super) places: Places,
    /// What is wrong with lines that are not among the rows, in their order.
    pub(super) faults: Vec<TableError>,
    /// Number of further such lines, which are not described.
    pub(super) more_faults: usize,
}

/// Where the rows are.
pub(super) enum Places {
    /// Of a file of lines, where each row begins.
    Lines(Vec<u64>),
    /// Of files of rows, the first row of each.
    Parts(Vec<(usize, PathBuf)>),
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
    text: Vec<u8>,
    ends: Vec<usize>,
}

/// Value of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    Empty,
    Number(f64),
    Word(&'a str),
    NotUtf8,
}

impl Words {
    /// Cells without anything.
    pub(super) fn empty(count: usize) -> Self {
        Self { text: Vec::new(), ends: vec![0; count] }
    }

    pub(super) fn push(&mut self, word: &[u8]) {
        self.text.extend_from_slice(word);
        self.ends.push(self.text.len());
    }

    pub(super) fn are_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether these are 1, 2, 3 and so on.
    pub(super) fn count_rows(&self) -> bool {
        self.iter().zip(1_usize..).all(|(word, number)| word == number.to_string().as_bytes())
    }

    /// Whether these are words, not numbers, that all differ.
    pub(super) fn are_distinct_words(&self) -> bool {
        let is_word = |word: &str| !word.is_empty() && word.parse::<f64>().is_err();
        let mut seen = BTreeSet::new();
        self.iter().all(|word| std::str::from_utf8(word).is_ok_and(is_word) && seen.insert(word))
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).map(|row| self.get(row))
    }

    fn get(&self, row: usize) -> &[u8] {
        let begin = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin..self.ends[row]]
    }
}

impl Column {
    /// Adds the cells of another part of the table.
    ///
    /// # Errors
    /// The types of both, if they differ.
    pub(super) fn append(self, part: Self) -> Result<Self, &'static str> {
        let is_empty = |numbers: &[Option<f64>]| numbers.iter().all(Option::is_none);
        match (self, part) {
            (Self::Numbers(mut numbers), Self::Numbers(more)) => {
                numbers.extend(more);
                Ok(Self::Numbers(numbers))
            }
            (Self::Words(mut words), Self::Words(more)) => {
                more.iter().for_each(|word| words.push(word));
                Ok(Self::Words(words))
            }
            (Self::Words(mut words), Self::Numbers(numbers)) if is_empty(&numbers) => {
                numbers.iter().for_each(|_| words.push(b""));
                Ok(Self::Words(words))
            }
            (Self::Numbers(numbers), Self::Words(more)) if is_empty(&numbers) => {
                Self::Words(Words::empty(numbers.len())).append(Self::Words(more))
            }
            (Self::Numbers(_), Self::Words(_)) | (Self::Words(_), Self::Numbers(_)) => Err("numbers and words"),
        }
    }

    pub(super) fn cell(&self, row: usize) -> Cell<'_> {
        match self {
            Self::Numbers(numbers) => numbers[row].map_or(Cell::Empty, Cell::Number),
            Self::Words(words) => match std::str::from_utf8(words.get(row)).map(str::trim) {
                Ok("") => Cell::Empty,
                Ok(word) => Cell::Word(word),
                Err(_) => Cell::NotUtf8,
            },
        }
    }
}

impl TableFile {
    /// Number of rows, at least 1.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The file with a row, and its place there.
    pub(super) fn place(&self, row: usize) -> (&Path, Place) {
        match &self.places {
            Places::Lines(lines) => (&self.path, Place::Line(lines.get(row).copied().unwrap_or_default())),
            Places::Parts(parts) => {
                let part = parts.partition_point(|(first, _)| *first <= row).checked_sub(1);
                let (first, path) = part.map_or((0, &self.path), |part| (parts[part].0, &parts[part].1));
                (path, Place::Row(row - first + 1))
            }
        }
    }

    /// Gives columns the names that the task has for them.
    ///
    /// # Errors
    /// There is no column with the name to be replaced.
    pub(super) fn rename(&mut self, renames: &[(String, String)]) -> Result<(), TableError> {
        for (own, of_task) in renames {
            let Some((name, _)) = self.columns.iter_mut().find(|(name, _)| name == own) else {
                let found = listed(&self.names());
                return Err(TableError::Unmapped { path: self.path.clone(), column: own.clone(), found });
            };
            name.clone_from(of_task);
        }
        Ok(())
    }

    /// The names of the columns that have one.
    pub(super) fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|(name, _)| name.as_str()).filter(|name| !name.is_empty()).collect()
    }
}

/// Opens a file of a table.
///
/// # Errors
/// It cannot be read, is a folder, or is too large.
pub(super) fn open(path: &Path) -> Result<File, TableError> {
    let unreadable = TableError::read(path);
    let file = File::open(path).map_err(&unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(TableError::Folder { path: path.into() });
    }
    if metadata.len() > MAX_BYTES {
        return Err(TableError::TooLarge { path: path.into() });
    }
    Ok(file)
}

/// Bounds the number of cells in memory.
pub(super) fn check_cells(path: &Path, rows: usize, columns: usize) -> Result<(), TableError> {
    if rows.saturating_mul(columns) > MAX_CELLS { Err(TableError::TooManyCells { path: path.into() }) } else { Ok(()) }
}
