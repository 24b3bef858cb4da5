//! A participant's own table, from a CSV or Parquet file, for tasks that name its columns (`model.table`).
//!
//! The file is read once, at the start, and kept as it is. It is converted for a task ([`fit`]) when the task is known,
//! so that one file serves tasks with other columns. Cells are shown in messages on this machine alone.

use std::path::PathBuf;
use std::str::FromStr;

mod choice;
mod csv;
mod error;
mod fit;
mod format;
mod parquet;
mod quotes;
mod record;
mod signature;
mod table;
mod trainer;

pub(crate) use error::TableError;
use format::Format;
use table::TableFile;
pub(crate) use trainer::{FileTrainer, Misfit};

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
    /// The error in the file, and its place.
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

#[cfg(test)]
mod tests;
