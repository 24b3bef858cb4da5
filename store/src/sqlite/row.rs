//! Conversion of values to and from columns.

use std::fmt::Display;
use std::str::FromStr;

use federation::id::{Attempt, Digest, ParticipantId, TaskId};
use federation::time::Timestamp;
use rusqlite::types::Value;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::statement::{Query, SqliteRow};
use crate::error::{Result, StoreError};

/// Converts each row with `read`.
pub(super) fn each<T>(rows: &[SqliteRow], read: impl Fn(&SqliteRow) -> Result<T>) -> Result<Vec<T>> {
    rows.iter().map(read).collect()
}

/// Reads columns by name.
pub(super) trait Columns {
    fn optional_uuid(&self, column: &str) -> Result<Option<Uuid>>;
    fn optional_text(&self, column: &str) -> Result<Option<String>>;
    fn optional_bytes(&self, column: &str) -> Result<Option<Vec<u8>>>;
    fn optional_integer(&self, column: &str) -> Result<Option<i64>>;
    fn optional_real(&self, column: &str) -> Result<Option<f64>>;
    fn optional_digest(&self, column: &str) -> Result<Option<Digest>>;

    fn uuid(&self, column: &str) -> Result<Uuid> {
        self.optional_uuid(column)?.ok_or_else(|| missing(column))
    }

    fn text(&self, column: &str) -> Result<String> {
        self.optional_text(column)?.ok_or_else(|| missing(column))
    }

    fn bytes(&self, column: &str) -> Result<Vec<u8>> {
        self.optional_bytes(column)?.ok_or_else(|| missing(column))
    }

    fn integer(&self, column: &str) -> Result<i64> {
        self.optional_integer(column)?.ok_or_else(|| missing(column))
    }

    fn small(&self, column: &str) -> Result<u32> {
        self.optional_small(column)?.ok_or_else(|| missing(column))
    }

    fn optional_small(&self, column: &str) -> Result<Option<u32>> {
        let small = |value| u32::try_from(value).map_err(|_| damaged(column, "does not fit 32 bits"));
        self.optional_integer(column)?.map(small).transpose()
    }

    fn large(&self, column: &str) -> Result<u64> {
        u64::try_from(self.integer(column)?).map_err(|_| damaged(column, "is negative"))
    }

    fn flag(&self, column: &str) -> Result<bool> {
        Ok(self.integer(column)? != 0)
    }

    fn time(&self, column: &str) -> Result<Timestamp> {
        Ok(Timestamp(self.integer(column)?))
    }

    fn optional_time(&self, column: &str) -> Result<Option<Timestamp>> {
        Ok(self.optional_integer(column)?.map(Timestamp))
    }

    fn digest(&self, column: &str) -> Result<Digest> {
        self.optional_digest(column)?.ok_or_else(|| missing(column))
    }

    fn named<T: FromStr<Err: Display>>(&self, column: &str) -> Result<T> {
        self.text(column)?.parse().map_err(|error| damaged(column, error))
    }

    fn optional_named<T: FromStr<Err: Display>>(&self, column: &str) -> Result<Option<T>> {
        let text = self.optional_text(column)?;
        text.map(|text| text.parse().map_err(|error| damaged(column, error))).transpose()
    }

    fn json<T: DeserializeOwned>(&self, column: &str) -> Result<T> {
        serde_json::from_str(&self.text(column)?).map_err(|error| damaged(column, error))
    }

    /// The columns `task`, `number` and `attempt`.
    fn attempt(&self) -> Result<Attempt> {
        let (round, attempt) = (self.small("number")?, self.small("attempt")?);
        Ok(Attempt { task: TaskId(self.uuid("task")?), round, attempt })
    }
}

impl Columns for SqliteRow {
    fn optional_uuid(&self, column: &str) -> Result<Option<Uuid>> {
        let id = |bytes| Uuid::from_slice(bytes).map_err(|_| damaged(column, "is not an id of 16 bytes"));
        blob(self, column)?.map(id).transpose()
    }

    fn optional_text(&self, column: &str) -> Result<Option<String>> {
        match self.value(column)? {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text.clone())),
            _ => Err(damaged(column, "is no text")),
        }
    }

    fn optional_bytes(&self, column: &str) -> Result<Option<Vec<u8>>> {
        Ok(blob(self, column)?.map(<[u8]>::to_vec))
    }

    fn optional_integer(&self, column: &str) -> Result<Option<i64>> {
        match self.value(column)? {
            Value::Null => Ok(None),
            Value::Integer(value) => Ok(Some(*value)),
            _ => Err(damaged(column, "is no integer")),
        }
    }

    fn optional_real(&self, column: &str) -> Result<Option<f64>> {
        match self.value(column)? {
            Value::Null => Ok(None),
            Value::Real(value) => Ok(Some(*value)),
            _ => Err(damaged(column, "is no real number")),
        }
    }

    fn optional_digest(&self, column: &str) -> Result<Option<Digest>> {
        let digest = |bytes: &[u8]| bytes.try_into().map(Digest);
        let digest = blob(self, column)?.map(digest).transpose();
        digest.map_err(|_| damaged(column, "is not a digest of 32 bytes"))
    }
}

fn blob<'r>(row: &'r SqliteRow, column: &str) -> Result<Option<&'r [u8]>> {
    match row.value(column)? {
        Value::Null => Ok(None),
        Value::Blob(bytes) => Ok(Some(bytes)),
        _ => Err(damaged(column, "is no blob")),
    }
}

fn missing(column: &str) -> StoreError {
    damaged(column, "is NULL")
}

fn damaged(column: &str, problem: impl Display) -> StoreError {
    StoreError::corrupt(format!("column {column:?} {problem}"))
}

/// Binds values that columns store in another form.
pub(super) trait Bind<'q>: Sized {
    fn digest(self, digest: Digest) -> Self;
    fn time(self, at: Timestamp) -> Self;
    /// The parameters `?1`, `?2`, `?3`: task, number, attempt.
    fn attempt(self, attempt: Attempt) -> Self;
}

impl<'q> Bind<'q> for Query<'q> {
    fn digest(self, digest: Digest) -> Self {
        Query::bind(self, digest)
    }

    fn time(self, at: Timestamp) -> Self {
        self.bind(at.0)
    }

    fn attempt(self, attempt: Attempt) -> Self {
        self.bind(attempt.task.0).bind(attempt.round).bind(attempt.attempt)
    }
}

/// JSON, for a column or for `json_each`.
pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(StoreError::fault)
}

/// A list of ids for `unhex(value) … json_each`, so that one statement takes any number of them.
pub(super) fn json_ids(ids: &[ParticipantId]) -> Result<String> {
    json(&ids.iter().map(|id| id.0.simple().to_string()).collect::<Vec<_>>())
}

/// A list of names for `value … json_each`.
pub(super) fn json_names<T: Display>(values: &[T]) -> Result<String> {
    json(&values.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// A number of bytes or elements as an SQLite integer.
pub(super) fn integer(value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| StoreError::fault(format!("{value} does not fit a column")))
}
