//! A table that is read anew for each task.

use std::path::Path;

use super::cells::{Cell, ColumnName, RowSink};
use super::error::{MAX_KEPT, Place, TableError};
use super::fit::{Fitted, Fitting, Keep, Report, Wanted};
use super::origin::Origin;
use super::read::format::Format;
use super::read::{csv, parquet};

/// A table, and the names that the task has for its columns.
pub(crate) struct TableSource {
    pub(super) format: Format,
    pub(super) origin: Origin,
    pub(super) renames: Vec<(String, String)>,
    /// Most numbers that a task may keep of it.
    pub(super) most: usize,
}

impl TableSource {
    pub(super) fn new(format: Format, origin: Origin, renames: &[(String, String)]) -> Self {
        Self { format, origin, renames: renames.to_vec(), most: MAX_KEPT }
    }

    /// Takes the columns that a task names, in its order. Rows with a cell that cannot be used are left out; the report says why.
    ///
    /// # Errors
    /// The table cannot be read, or too much of it would be kept.
    pub(crate) fn fit(&self, wanted: &Wanted, keep: Keep) -> Result<(Fitted, Report), TableError> {
        let mut fitting = Fitting::new(wanted, keep, self.origin.path(), self.most);
        self.read(&mut fitting)?;
        Ok(fitting.end())
    }

    /// The rows, if the task accepts what was left out.
    ///
    /// # Errors
    /// Those of [`Self::fit`]; the first problem, if the task does not allow so many rows to be left out.
    pub(crate) fn fitted(&self, wanted: &Wanted, keep: Keep) -> Result<(Fitted, Report), TableError> {
        let (fitted, report) = self.fit(wanted, keep)?;
        match report.verdict() {
            None => Ok((fitted, report)),
            Some(error) => Err(error),
        }
    }

    /// The number of rows, for no task yet.
    ///
    /// # Errors
    /// There is no table, or a line is wrong for every task.
    pub(crate) fn count(&self) -> Result<u64, TableError> {
        let mut counted = Counted::default();
        self.read(&mut counted)?;
        let fault = counted.fault.filter(|fault| counted.rows == 0 || !fault.is_of_row());
        fault.map_or(Ok(counted.rows), Err)
    }

    pub(super) fn read(&self, rows: &mut impl RowSink) -> Result<(), TableError> {
        match self.format {
            Format::Csv => csv::read(&self.origin, &self.renames, rows),
            Format::Parquet => parquet::read(&self.origin, &self.renames, rows),
        }
    }
}

/// Counts rows.
#[derive(Default)]
struct Counted {
    rows: u64,
    /// The first one, or the first that is not of a row.
    fault: Option<TableError>,
}

impl RowSink for Counted {
    fn select(&mut self, _: &[ColumnName]) -> Vec<usize> {
        Vec::new()
    }

    fn row<'a>(&mut self, _: &Path, _: Place, _: impl Fn(usize) -> Cell<'a>) -> Result<(), TableError> {
        self.rows += 1;
        Ok(())
    }

    fn fault(&mut self, fault: TableError) {
        if self.fault.as_ref().is_none_or(|first| first.is_of_row() && !fault.is_of_row()) {
            self.fault = Some(fault);
        }
    }

    fn lose(&mut self, _: usize, _: String) {}
}
