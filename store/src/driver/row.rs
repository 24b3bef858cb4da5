//! Rows of a query, and the types that are read from them.

use federation::id::{Attempt, TaskId};

use super::value::{Column, Read, Value};
use crate::error::{Result, StoreError};

/// A row: its columns are found by name, or by position from `first` on.
pub(crate) struct Row<'r> {
    names: &'r [Box<str>],
    values: &'r dyn Values,
    first: usize,
}

/// The values of a row, where the database has them.
pub(crate) trait Values {
    /// The value at a position, counted from 0, that the row has.
    ///
    /// # Errors
    /// The error of the column, as in "column … is not UTF-8".
    fn value(&self, position: usize) -> Read<Value<'_>>;
}

/// Content of a row: a record by its columns' names ([`columns!`]), or values by their positions.
pub(crate) trait FromRow: Sized + Send + 'static {
    /// # Errors
    /// `Corrupt` if a column holds another kind of value; `Fault` if the column is missing.
    fn from_row(row: &Row<'_>) -> Result<Self>;
}

impl<'r> Row<'r> {
    pub(crate) fn new(names: &'r [Box<str>], values: &'r dyn Values) -> Self {
        Self { names, values, first: 0 }
    }

    /// The same row without its first column.
    pub(crate) fn rest(&self) -> Self {
        Self { first: self.first + 1, ..*self }
    }

    /// The value of the column of this name.
    pub(crate) fn get<T: Column>(&self, column: &str) -> Result<T> {
        let index = self.names.iter().position(|name| &**name == column);
        self.read(index.ok_or_else(|| StoreError::fault(format!("a statement yields no column {column:?}")))?)
    }

    /// The value of the column at this position, counted from 0.
    pub(crate) fn at<T: Column>(&self, position: usize) -> Result<T> {
        self.read(self.first + position)
    }

    fn read<T: Column>(&self, index: usize) -> Result<T> {
        let name = self.names.get(index);
        let name = name.ok_or_else(|| StoreError::fault(format!("a statement yields no column {index}")))?;
        let value = self.values.value(index).and_then(|value| T::from_value(&value));
        value.map_err(|problem| StoreError::corrupt(format!("column {name:?} {problem}")))
    }
}

impl<T: Column> FromRow for T {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        row.at(0)
    }
}

macro_rules! tuples {
    ($(($($type:ident $position:literal),+))+) => { $(
        impl<$($type: Column),+> FromRow for ($($type,)+) {
            fn from_row(row: &Row<'_>) -> Result<Self> {
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
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self { task: TaskId(row.get("task")?), round: row.get("number")?, attempt: row.get("attempt")? })
    }
}
