//! Rows of a statement, and the types that are read from them.

use federation::id::{Attempt, TaskId};
use rusqlite::types::ValueRef;

use super::error::translate;
use crate::error::{Result, StoreError};

/// A row: its columns are found by name, or by position from `first` on.
pub(super) struct SqliteRow<'r> {
    names: &'r [Box<str>],
    row: &'r rusqlite::Row<'r>,
    first: usize,
}

/// What a row holds: a record by its columns' names ([`columns!`]), or values by their positions.
pub(super) trait FromRow: Sized {
    /// # Errors
    /// `Corrupt` if a column holds no such value; `Fault` if there is no such column.
    fn from_row(row: &SqliteRow<'_>) -> Result<Self>;
}

/// A value of one column.
pub(super) trait Column: Sized {
    /// # Errors
    /// What is wrong with the column, as in "column … is NULL".
    fn from_value(value: ValueRef<'_>) -> std::result::Result<Self, String>;
}

impl<'r> SqliteRow<'r> {
    pub(super) fn new(names: &'r [Box<str>], row: &'r rusqlite::Row<'r>) -> Self {
        Self { names, row, first: 0 }
    }

    /// The same row without its first column.
    pub(super) fn rest(&self) -> Self {
        Self { first: self.first + 1, ..*self }
    }

    /// The value of the column of this name.
    pub(super) fn get<T: Column>(&self, column: &str) -> Result<T> {
        let index = self.names.iter().position(|name| &**name == column);
        self.read(index.ok_or_else(|| StoreError::fault(format!("a statement yields no column {column:?}")))?)
    }

    /// The value of the column at this position, counted from 0.
    pub(super) fn at<T: Column>(&self, position: usize) -> Result<T> {
        self.read(self.first + position)
    }

    fn read<T: Column>(&self, index: usize) -> Result<T> {
        let value = self.row.get_ref(index).map_err(translate)?;
        let name = || self.names.get(index).map_or("", |name| name);
        T::from_value(value).map_err(|problem| StoreError::corrupt(format!("column {:?} {problem}", name())))
    }
}

impl<T: Column> FromRow for T {
    fn from_row(row: &SqliteRow<'_>) -> Result<Self> {
        row.at(0)
    }
}

macro_rules! tuples {
    ($(($($type:ident $position:literal),+))+) => { $(
        impl<$($type: Column),+> FromRow for ($($type,)+) {
            fn from_row(row: &SqliteRow<'_>) -> Result<Self> {
                Ok(($(row.at::<$type>($position)?,)+))
            }
        }
    )+ };
}

tuples! {
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
}

/// From the columns `task`, `number` and `attempt`.
impl FromRow for Attempt {
    fn from_row(row: &SqliteRow<'_>) -> Result<Self> {
        Ok(Self { task: TaskId(row.get("task")?), round: row.get("number")?, attempt: row.get("attempt")? })
    }
}
