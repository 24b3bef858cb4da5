//! What became of the rows of a table, for the people whose table it is.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use task_spec::{Percentage, TableColumn};

use crate::table_file::error::{MAX_PROBLEMS, TableError};

/// Most words of a column that are counted.
const MAX_WORDS: usize = 1024;

/// Rows used and left out, and the content of each column. Stays on this machine.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// The file or folder.
    pub(crate) path: PathBuf,
    /// Rows of the file.
    pub(crate) rows: usize,
    pub(crate) used: usize,
    /// Rows with a cell that cannot be used, and lines that are not rows.
    pub(crate) skipped: usize,
    /// Share of rows that the task allows to be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) may_skip: Option<Percentage>,
    /// Number of problems, also of those that are not listed.
    #[serde(rename = "problems")]
    pub(crate) count: usize,
    pub(crate) columns: Vec<ColumnReport>,
    #[serde(skip)]
    pub(crate) problems: Vec<TableError>,
    /// The first problem that is not of a row.
    #[serde(skip)]
    pub(super) fatal: Option<TableError>,
}

/// The content of a column that the task takes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ColumnReport {
    pub(crate) column: String,
    pub(crate) is_label: bool,
    pub(crate) empty: usize,
    /// Empty cells that get a value, as the task says.
    pub(crate) imputed: usize,
    /// Range of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range: Option<(f64, f64)>,
    /// Least and greatest number found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) found: Option<(f64, f64)>,
    /// Numbers outside the task's range.
    pub(crate) outside: usize,
    /// Cells with other words than the task lists.
    pub(crate) unlisted: usize,
    /// How often each word occurs, also of those that are not listed; of a label the class balance of the rows that are used.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) words: BTreeMap<String, usize>,
}

impl ColumnReport {
    pub(super) fn new(wanted: &TableColumn, is_label: bool) -> Self {
        let words = wanted.one_of.iter().map(|word| (word.clone(), 0)).collect();
        Self { column: wanted.column.clone(), is_label, range: wanted.range(), words, ..Self::default() }
    }

    pub(super) fn see_number(&mut self, number: f64) {
        let (low, high) = self.found.unwrap_or((number, number));
        self.found = Some((low.min(number), high.max(number)));
        self.outside += usize::from(self.range.is_some_and(|(low, high)| !(low..=high).contains(&number)));
    }

    pub(super) fn see_word(&mut self, word: &str) {
        if let Some(count) = self.words.get_mut(word) {
            *count += 1;
        } else if self.words.len() < MAX_WORDS {
            self.words.insert(word.to_owned(), 1);
        }
    }
}

impl Report {
    pub(super) fn add(&mut self, problem: TableError) {
        self.count += 1;
        if self.fatal.is_none() && !problem.is_of_row() {
            self.fatal = Some(problem.clone());
        }
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        }
    }

    /// Why the task does not accept the file, if it does not: a problem that is not of a row, more rows left out than the task allows,
    /// or none that can be used.
    pub(crate) fn verdict(&self) -> Option<TableError> {
        if let Some(problem) = &self.fatal {
            return Some(problem.clone());
        }
        let first = self.problems.first()?;
        let (path, first_of_many) = (self.path.clone(), || Box::new(first.clone()));
        match self.may_skip {
            None => Some(first.clone()),
            Some(share) if self.skipped > share.of(self.rows) => {
                let (skipped, rows, allowed) = (self.skipped, self.rows, share.to_string());
                Some(TableError::TooManySkipped { path, skipped, rows, allowed, first: first_of_many() })
            }
            Some(_) if self.used == 0 => Some(TableError::NoneUsed { path, first: first_of_many() }),
            Some(_) => None,
        }
    }

    /// Empty cells that get a value.
    pub(crate) fn imputed(&self) -> usize {
        self.columns.iter().map(|column| column.imputed).sum()
    }

    /// What became of the rows, in one line.
    pub(crate) fn words(&self) -> String {
        let Self { path, rows, used, skipped, .. } = self;
        let mut text = format!("{}: {used} of {rows} rows can be used", path.display());
        match &self.may_skip {
            Some(share) => text += &format!(", {skipped} are left out (the task allows {share})"),
            None if *skipped > 0 => text += &format!(", {skipped} cannot (the task allows none to be left out)"),
            None => {}
        }
        match self.imputed() {
            0 => text,
            1 => text + ", and 1 empty cell gets a value of the task",
            imputed => text + &format!(", and {imputed} empty cells get values of the task"),
        }
    }
}
