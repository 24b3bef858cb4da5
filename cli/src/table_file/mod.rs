//! A participant's own table, from a CSV or Parquet file or a command, for tasks that name its columns (`model.table`).
//!
//! The table is read row by row for each task, and only what the task takes is kept. Cells are shown in messages on this machine alone.

use std::str::FromStr;

mod cells;
mod command;
mod error;
mod fit;
mod listed;
mod origin;
mod read;
mod source;
mod trainer;

pub(crate) use error::{Place, TableError};
pub(crate) use fit::{ColumnReport, Keep, Report, Wanted};
use origin::{Location, Origin};
use read::format::Format;
use source::TableSource;
pub(crate) use trainer::{FileTrainer, Misfit};

/// The forms of a table's place, for messages about others.
pub(crate) const FORMS: &str = "csv:FILE, parquet:FILE or 'command:COMMAND LINE'";

/// Where a table is: `csv:FILE`, `parquet:FILE` or `command:COMMAND LINE`, and the names that the task has for its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TablePath {
    format: Format,
    location: Location,
    renames: Vec<(String, String)>,
}

impl FromStr for TablePath {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, place) = text.split_once(':').ok_or(())?;
        if place.trim().is_empty() {
            return Err(());
        }
        let (format, location) = match kind {
            "csv" => (Format::Csv, Location::Path(place.into())),
            "parquet" => (Format::Parquet, Location::Path(place.into())),
            "command" => (Format::Csv, Location::Command(place.to_owned())),
            _ => return Err(()),
        };
        Ok(Self { format, location, renames: Vec::new() })
    }
}

impl TablePath {
    /// The same with other names for columns: pairs of the name in the file and the task's.
    pub(crate) fn renamed(&self, renames: &[(String, String)]) -> Self {
        Self { renames: renames.to_vec(), ..self.clone() }
    }

    /// The table, to be read for one task after the other.
    ///
    /// # Errors
    /// There is no file, or a pipe cannot be read.
    pub(crate) fn open(&self) -> Result<TableSource, TableError> {
        Ok(TableSource::new(self.format, Origin::open(&self.location)?, &self.renames))
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
