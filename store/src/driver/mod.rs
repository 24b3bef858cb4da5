//! The interface of a database: run statements with bound values in transactions, and return their rows.
//!
//! Everything above is written once: bound and read values are a [`Value`], and each entity's statements lie with its
//! type. A module of its own below, such as `sqlite`, implements [`Backend`] and [`Driver`] for one database.

#[macro_use]
mod record;
mod row;
#[macro_use]
mod value;

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;
use federation::time::Timestamp;

pub(crate) use self::record::Record;
pub(crate) use self::row::{FromRow, Row, Values};
pub(crate) use self::value::{After, Before, Bind, Column, Json, Read, Value, document, json, parse};
use crate::error::Result;

/// Whether a transaction may change rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
}

/// Number of rows that a statement touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// A few, found by a key.
    Few,
    /// Any number.
    Many,
}

/// Most keys whose rows are a few.
const FEW: usize = 16;

impl Extent {
    /// That of rows found by so many keys.
    pub(crate) fn of(keys: usize) -> Self {
        if keys <= FEW { Self::Few } else { Self::Many }
    }
}

/// Number of attempts before the caller gets [`StoreError::Busy`](crate::StoreError::Busy), unless a database sets another number.
pub(crate) const MAX_ATTEMPTS: u32 = 5;

/// A writer's turn, held until its transaction has ended.
pub(crate) type Turn = Box<dyn Any + Send>;

/// A database.
#[async_trait]
pub(crate) trait Backend: Send + Sync {
    /// Waits until this process may begin a transaction of this name, whose last attempt `was_refused` because of another writer.
    async fn turn(&self, _name: &'static str, _mode: Mode, _was_refused: bool) -> Option<Turn> {
        None
    }

    /// Waits for a connection and begins a transaction of this name.
    async fn begin(&self, name: &'static str, mode: Mode) -> Result<Box<dyn Driver>>;

    /// How long to pause after `attempt` attempts that met another writer or lost their connection, the last ones for `lost` since
    /// the first of them did; `None` to give up.
    fn pause(&self, attempt: u32, _lost: Option<Duration>) -> Option<Duration> {
        (attempt < MAX_ATTEMPTS).then_some(Duration::ZERO)
    }

    /// The time of the machine that all share; `None` where there is one process.
    async fn now(&self) -> Result<Option<Timestamp>> {
        Ok(None)
    }

    /// Flushes the write-ahead log to the database and truncates it.
    async fn empty_log(&self) -> Result<()>;
    /// Reads the whole database and fails if it is malformed.
    async fn check(&self) -> Result<()>;

    /// Reads the whole database, follows every reference, and returns the problems.
    async fn problems(&self) -> Result<Vec<String>>;

    /// Limits the database to this many pages, as if the disk were full.
    #[cfg(feature = "conformance")]
    async fn limit_pages(&self, pages: u32) -> Result<()>;

    /// Takes every migration back.
    #[cfg(feature = "conformance")]
    async fn revert_schema(&self) -> Result<()>;

    /// Takes every missing migration.
    #[cfg(feature = "conformance")]
    async fn migrate_schema(&self) -> Result<()>;

    /// The prefix that makes the database return a query's plan instead of running it.
    #[cfg(feature = "conformance")]
    fn explain(&self) -> &'static str;
}

/// A transaction in progress on a connection. Dropping it without a commit undoes it.
#[async_trait]
pub(crate) trait Driver: Send {
    /// Changes rows; returns their number.
    async fn change(&mut self, query: Query<'_>, extent: Extent) -> Result<u64>;

    /// Runs a query to its end, passes its rows to `taker`, and gives that back. Each row is taken before the next one
    /// is fetched, for they may be large together.
    async fn query(&mut self, query: Query<'_>, extent: Extent, taker: Box<dyn Take>) -> Result<Box<dyn Take>>;

    /// Makes every change durable.
    async fn commit(self: Box<Self>) -> Result<()>;

    async fn rollback(self: Box<Self>) -> Result<()>;
}

/// A statement with its arguments.
pub(crate) struct Query<'q> {
    /// SQL, with braces for the differences between databases:
    ///
    /// - `{?4 participant:bytes serial:integer}` has the rows of argument 4, a [`Value::List`], with these columns. Kinds
    ///   are `bytes`, `integer`, `real` and `text`;
    /// - `{carries labels ?3}` is whether the object of texts in a column has all that are in the one of argument 3;
    /// - `{text actor token}` is the text of this name in the object in a column, NULL if it is missing. An index of it
    ///   is written as databases spell it;
    /// - `{now}` is the time in milliseconds since 1970 where several processes share the database, else NULL.
    ///
    /// `CROSS JOIN … ON` is a join whose left side SQLite has to read first.
    pub(crate) sql: &'static str,
    /// The values of `?1`, `?2` and so on.
    pub(crate) arguments: Vec<Value<'q>>,
}

impl<'q> Query<'q> {
    pub(crate) fn new(sql: &'static str, arguments: &'q impl Bind) -> Result<Self> {
        let mut query = Self { sql, arguments: Vec::new() };
        arguments.bind(&mut query.arguments)?;
        Ok(query)
    }

    pub(crate) fn into_owned(self) -> Query<'static> {
        Query { sql: self.sql, arguments: self.arguments.into_iter().map(Value::into_owned).collect() }
    }
}

/// Takes the rows of a query: an [`Option`] the first one, a [`Vec`] all.
pub(crate) trait Take: Any + Send {
    fn take(&mut self, row: &Row<'_>) -> Result<()>;
}

impl<T: FromRow> Take for Option<T> {
    fn take(&mut self, row: &Row<'_>) -> Result<()> {
        if self.is_none() {
            *self = Some(T::from_row(row)?);
        }
        Ok(())
    }
}

impl<T: FromRow> Take for Vec<T> {
    fn take(&mut self, row: &Row<'_>) -> Result<()> {
        self.push(T::from_row(row)?);
        Ok(())
    }
}
