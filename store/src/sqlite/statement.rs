//! Queries on a connection: statements are prepared once, and values are read where SQLite has them.

use std::borrow::Cow;

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection};

use super::error::translate;
use crate::driver::{Query, Read, Row, Value, Values};
use crate::error::{Result, StoreError};

/// Changes rows; returns their number.
pub(super) fn change(connection: &Connection, query: &Query<'_>) -> Result<u64> {
    let changed = prepare(connection, query)?.raw_execute().map_err(translate)?;
    changed.try_into().map_err(StoreError::fault)
}

/// Passes every row to `take` before the next one is read.
pub(super) fn for_each(
    connection: &Connection,
    query: &Query<'_>,
    mut take: impl FnMut(&Row<'_>) -> Result<()>,
) -> Result<()> {
    let mut statement = prepare(connection, query)?;
    let names: Vec<Box<str>> = statement.column_names().into_iter().map(Box::from).collect();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(translate)? {
        take(&Row::new(&names, row))?;
    }
    Ok(())
}

fn prepare<'c>(connection: &'c Connection, query: &Query<'_>) -> Result<CachedStatement<'c>> {
    let mut statement = connection.prepare_cached(query.sql).map_err(translate)?;
    for (number, argument) in (1..).zip(&query.arguments) {
        statement.raw_bind_parameter(number, Parameter(argument)).map_err(translate)?;
    }
    Ok(statement)
}

struct Parameter<'q>(&'q Value<'q>);

impl ToSql for Parameter<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Integer(number) => ValueRef::Integer(*number),
            Value::Real(number) => ValueRef::Real(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Blob(bytes) => ValueRef::Blob(bytes),
            Value::List { .. } => return Err(rusqlite::Error::ToSqlConversionFailure("a list is no value".into())),
        }))
    }
}

impl Values for rusqlite::Row<'_> {
    fn value(&self, position: usize) -> Read<Value<'_>> {
        Ok(match self.get_ref(position).map_err(|error| error.to_string())? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::Integer(number),
            ValueRef::Real(number) => Value::Real(number),
            ValueRef::Text(text) => Value::Text(Cow::Borrowed(std::str::from_utf8(text).map_err(|_| "is not UTF-8")?)),
            ValueRef::Blob(bytes) => Value::Blob(Cow::Borrowed(bytes)),
        })
    }
}
