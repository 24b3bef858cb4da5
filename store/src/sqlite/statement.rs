//! Statements with their arguments.

use rusqlite::types::{ToSql, ToSqlOutput, Value, ValueRef};
use rusqlite::{CachedStatement, Connection};

use super::error::translate;
use super::row::{FromRow, SqliteRow};
use crate::error::{Result, StoreError};

/// A statement with its arguments.
pub(super) struct Query<'q> {
    sql: &'static str,
    arguments: Vec<Argument<'q>>,
}

/// A value for a parameter.
pub(super) enum Argument<'q> {
    Borrowed(ValueRef<'q>),
    Owned(Value),
}

/// Values for the next parameters of a statement, in their order: `?1`, `?2` and so on.
pub(super) trait Bind: Send + Sync {
    fn bind<'q>(&'q self, to: &mut Vec<Argument<'q>>) -> Result<()>;
}

impl<'q> Query<'q> {
    pub(super) fn new(sql: &'static str, arguments: &'q impl Bind) -> Result<Self> {
        let mut query = Self { sql, arguments: Vec::new() };
        arguments.bind(&mut query.arguments)?;
        Ok(query)
    }

    /// A copy that borrows nothing.
    pub(super) fn into_owned(self) -> Result<Query<'static>> {
        let arguments = self.arguments.into_iter().map(Argument::into_owned).collect::<Result<_>>()?;
        Ok(Query { sql: self.sql, arguments })
    }

    /// Changes rows; returns their number.
    pub(super) fn execute(&self, connection: &Connection) -> Result<usize> {
        self.prepare(connection)?.raw_execute().map_err(translate)
    }

    /// The first row, if any. The statement still runs to its end.
    pub(super) fn first<T: FromRow>(&self, connection: &Connection) -> Result<Option<T>> {
        let mut first = None;
        self.for_each(connection, |row| {
            if first.is_none() {
                first = Some(T::from_row(row)?);
            }
            Ok(())
        })?;
        Ok(first)
    }

    pub(super) fn all<T: FromRow>(&self, connection: &Connection) -> Result<Vec<T>> {
        let mut all = Vec::new();
        self.for_each(connection, |row| {
            all.push(T::from_row(row)?);
            Ok(())
        })?;
        Ok(all)
    }

    /// Passes every row to `take` before the next one is read.
    fn for_each(&self, connection: &Connection, mut take: impl FnMut(&SqliteRow<'_>) -> Result<()>) -> Result<()> {
        let mut statement = self.prepare(connection)?;
        let names: Vec<Box<str>> = statement.column_names().into_iter().map(Box::from).collect();
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(translate)? {
            take(&SqliteRow::new(&names, row))?;
        }
        Ok(())
    }

    fn prepare<'c>(&self, connection: &'c Connection) -> Result<CachedStatement<'c>> {
        let mut statement = connection.prepare_cached(self.sql).map_err(translate)?;
        for (number, argument) in (1..).zip(&self.arguments) {
            statement.raw_bind_parameter(number, argument).map_err(translate)?;
        }
        Ok(statement)
    }
}

impl Argument<'_> {
    fn into_owned(self) -> Result<Argument<'static>> {
        Ok(Argument::Owned(match self {
            Self::Borrowed(value) => value.try_into().map_err(StoreError::fault)?,
            Self::Owned(value) => value,
        }))
    }
}

impl<'q> From<ValueRef<'q>> for Argument<'q> {
    fn from(value: ValueRef<'q>) -> Self {
        Self::Borrowed(value)
    }
}

impl From<String> for Argument<'_> {
    fn from(text: String) -> Self {
        Self::Owned(Value::Text(text))
    }
}

impl ToSql for Argument<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Borrowed(value) => *value,
            Self::Owned(value) => value.into(),
        }))
    }
}
