//! Statements with their arguments, and their result rows.

use std::borrow::Cow;
use std::sync::Arc;

use federation::id::Digest;
use rusqlite::types::{ToSql, ToSqlOutput, Value, ValueRef};
use rusqlite::{CachedStatement, Connection};
use uuid::Uuid;

use super::error::translate;
use crate::error::{Result, StoreError};

/// A statement with its arguments.
pub(super) struct Query<'q> {
    sql: &'static str,
    arguments: Vec<Argument<'q>>,
}

/// Creates a query; its parameters `?1`, `?2` and so on are bound in this order.
pub(super) fn query<'q>(sql: &'static str) -> Query<'q> {
    Query { sql, arguments: Vec::new() }
}

/// A value for a parameter.
pub(super) enum Argument<'q> {
    Null,
    Integer(i64),
    Real(f64),
    Text(Cow<'q, str>),
    Blob(Cow<'q, [u8]>),
    Id(Uuid),
    Digest(Digest),
}

/// A row, indexed by column name.
pub(super) struct SqliteRow {
    columns: Arc<[Box<str>]>,
    values: Vec<Value>,
}

impl<'q> Query<'q> {
    /// Binds the next parameter.
    pub(super) fn bind(mut self, value: impl Into<Argument<'q>>) -> Self {
        self.arguments.push(value.into());
        self
    }

    /// A copy that borrows nothing.
    pub(super) fn into_owned(self) -> Query<'static> {
        Query { sql: self.sql, arguments: self.arguments.into_iter().map(Argument::into_owned).collect() }
    }

    /// Changes rows; returns their number.
    pub(super) fn execute(&self, connection: &Connection) -> Result<u64> {
        self.prepare(connection)?.raw_execute().map(|rows| rows as u64).map_err(translate)
    }

    /// The first row, if any. The statement still runs to its end.
    pub(super) fn first(&self, connection: &Connection) -> Result<Option<SqliteRow>> {
        let mut first = None;
        self.for_each(connection, |row| {
            first.get_or_insert(row);
            Ok(())
        })?;
        Ok(first)
    }

    /// Passes every row to `take` before the next one is read.
    pub(super) fn for_each(
        &self,
        connection: &Connection,
        mut take: impl FnMut(SqliteRow) -> Result<()>,
    ) -> Result<()> {
        let mut statement = self.prepare(connection)?;
        let columns: Arc<[Box<str>]> = statement.column_names().into_iter().map(Box::from).collect();
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(translate)? {
            let value = |index| row.get_ref(index).map_err(translate).and_then(owned);
            let values = (0..columns.len()).map(value).collect::<Result<_>>()?;
            take(SqliteRow { columns: Arc::clone(&columns), values })?;
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

fn owned(value: ValueRef<'_>) -> Result<Value> {
    value.try_into().map_err(|_| StoreError::corrupt("a text is not UTF-8"))
}

impl SqliteRow {
    /// The value of a column.
    pub(super) fn value(&self, column: &str) -> Result<&Value> {
        let index = self.columns.iter().position(|name| &**name == column);
        let value = index.and_then(|index| self.values.get(index));
        value.ok_or_else(|| StoreError::fault(format!("a statement yields no column {column:?}")))
    }
}

impl Argument<'_> {
    fn into_owned(self) -> Argument<'static> {
        match self {
            Self::Null => Argument::Null,
            Self::Integer(value) => Argument::Integer(value),
            Self::Real(value) => Argument::Real(value),
            Self::Text(text) => Argument::Text(Cow::Owned(text.into_owned())),
            Self::Blob(bytes) => Argument::Blob(Cow::Owned(bytes.into_owned())),
            Self::Id(id) => Argument::Id(id),
            Self::Digest(digest) => Argument::Digest(digest),
        }
    }
}

impl ToSql for Argument<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(value) => ValueRef::Integer(*value),
            Self::Real(value) => ValueRef::Real(*value),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
            Self::Id(id) => ValueRef::Blob(id.as_bytes()),
            Self::Digest(digest) => ValueRef::Blob(&digest.0),
        }))
    }
}

impl<'q, T: Into<Argument<'q>>> From<Option<T>> for Argument<'q> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

macro_rules! arguments {
    ($type:ty, $value:ident => $argument:expr) => {
        impl<'q> From<$type> for Argument<'q> {
            fn from($value: $type) -> Self {
                $argument
            }
        }
    };
}

arguments!(i64, value => Self::Integer(value));
arguments!(u32, value => Self::Integer(value.into()));
arguments!(u16, value => Self::Integer(value.into()));
arguments!(bool, value => Self::Integer(value.into()));
arguments!(f64, value => Self::Real(value));
arguments!(String, text => Self::Text(Cow::Owned(text)));
arguments!(&'q str, text => Self::Text(Cow::Borrowed(text)));
arguments!(&'q String, text => Self::Text(Cow::Borrowed(text)));
arguments!(Vec<u8>, bytes => Self::Blob(Cow::Owned(bytes)));
arguments!(&'q Vec<u8>, bytes => Self::Blob(Cow::Borrowed(bytes)));
arguments!(&'q [u8], bytes => Self::Blob(Cow::Borrowed(bytes)));
arguments!(Uuid, id => Self::Id(id));
arguments!(Digest, digest => Self::Digest(digest));
