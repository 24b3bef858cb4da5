//! A participant's own table, from a CSV or Parquet file, for tasks that name its columns (`model.table`).
//!
//! The file is read once, at the start, and kept as it is. It is converted for a task ([`fit`]) when the task is known,
//! so that one file serves tasks with other columns. Cells are shown in messages on this machine alone.

use std::path::PathBuf;
use std::str::FromStr;

mod error;
mod fit;
mod listed;
mod read;
mod table;
mod trainer;

pub(crate) use error::{Place, TableError};
pub(crate) use fit::{ColumnReport, Report, Wanted};
use read::format::Format;
use read::{csv, parquet};
use table::TableFile;
pub(crate) use trainer::{FileTrainer, Misfit};

/// Where a table is: `csv:FILE` or `parquet:FILE`, and the names that the task has for its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TablePath {
    format: Format,
    path: PathBuf,
    renames: Vec<(String, String)>,
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
        if path.is_empty() { Err(()) } else { Ok(Self { format, path: path.into(), renames: Vec::new() }) }
    }
}

impl TablePath {
    /// The same with other names for columns: pairs of the name in the file and the task's.
    pub(crate) fn renamed(&self, renames: &[(String, String)]) -> Self {
        Self { renames: renames.to_vec(), ..self.clone() }
    }

    /// Reads the table.
    ///
    /// # Errors
    /// The error in the file, and its place.
    pub(crate) fn read(&self) -> Result<TableFile, TableError> {
        let table = self.inspect()?;
        match table.faults.iter().find(|fault| table.rows == 0 || !fault.is_of_row()) {
            Some(fault) => Err(fault.clone()),
            None => Ok(table),
        }
    }

    /// Reads the table as far as it can be read, with the faults of its lines.
    ///
    /// # Errors
    /// There is no table.
    pub(crate) fn inspect(&self) -> Result<TableFile, TableError> {
        let mut table = match self.format {
            Format::Csv => csv::read(&self.path)?,
            Format::Parquet => parquet::read(&self.path)?,
        };
        if table.rows == 0 && table.faults.is_empty() {
            return Err(TableError::NoRows { path: self.path.clone() });
        }
        table.rename(&self.renames)?;
        Ok(table)
    }
}

/// `Alter=age`: the file's column `Alter` is the task's column `age`.
pub(crate) fn parse_rename(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(own, of_task)| !own.is_empty() && !of_task.is_empty());
    let (own, of_task) = pair.ok_or("a column is renamed by OWN=TASK, for example Alter=age")?;
    Ok((own.to_owned(), of_task.to_owned()))
}

#[cfg(test)]
mod tests;
