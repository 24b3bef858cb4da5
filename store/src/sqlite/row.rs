//! Values of our types in and out of columns.

use std::fmt::Display;
use std::str::FromStr;

use federation::id::{Digest, ParticipantId, RoundKey, TaskId};
use federation::time::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::Query;
use super::error::translate;
use crate::error::{Result, StoreError};

/// Every one of `rows`, read by `read`.
pub(super) fn each<T>(rows: &[SqliteRow], read: impl Fn(&SqliteRow) -> Result<T>) -> Result<Vec<T>> {
    rows.iter().map(read).collect()
}

/// Reads columns by name.
pub(super) trait Columns {
    fn uuid(&self, column: &str) -> Result<Uuid>;
    fn text(&self, column: &str) -> Result<String>;
    fn optional_text(&self, column: &str) -> Result<Option<String>>;
    fn bytes(&self, column: &str) -> Result<Vec<u8>>;
    fn optional_bytes(&self, column: &str) -> Result<Option<Vec<u8>>>;
    fn small(&self, column: &str) -> Result<u32>;
    fn optional_small(&self, column: &str) -> Result<Option<u32>>;
    fn large(&self, column: &str) -> Result<u64>;
    fn flag(&self, column: &str) -> Result<bool>;
    fn optional_integer(&self, column: &str) -> Result<Option<i64>>;
    fn optional_real(&self, column: &str) -> Result<Option<f64>>;
    fn optional_digest(&self, column: &str) -> Result<Option<Digest>>;

    fn time(&self, column: &str) -> Result<Timestamp> {
        self.optional_time(column)?.ok_or_else(|| damaged(column, "is NULL"))
    }

    fn optional_time(&self, column: &str) -> Result<Option<Timestamp>> {
        Ok(self.optional_integer(column)?.map(Timestamp))
    }

    fn digest(&self, column: &str) -> Result<Digest> {
        self.optional_digest(column)?.ok_or_else(|| damaged(column, "is NULL"))
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

    /// The columns `task` and `number`.
    fn round_key(&self) -> Result<RoundKey> {
        Ok(RoundKey { task: TaskId(self.uuid("task")?), number: self.small("number")? })
    }
}

impl Columns for SqliteRow {
    fn uuid(&self, column: &str) -> Result<Uuid> {
        self.try_get(column).map_err(translate)
    }

    fn text(&self, column: &str) -> Result<String> {
        self.try_get(column).map_err(translate)
    }

    fn optional_text(&self, column: &str) -> Result<Option<String>> {
        self.try_get(column).map_err(translate)
    }

    fn bytes(&self, column: &str) -> Result<Vec<u8>> {
        self.try_get(column).map_err(translate)
    }

    fn optional_bytes(&self, column: &str) -> Result<Option<Vec<u8>>> {
        self.try_get(column).map_err(translate)
    }

    fn small(&self, column: &str) -> Result<u32> {
        self.try_get(column).map_err(translate)
    }

    fn optional_small(&self, column: &str) -> Result<Option<u32>> {
        self.try_get(column).map_err(translate)
    }

    fn large(&self, column: &str) -> Result<u64> {
        let value: i64 = self.try_get(column).map_err(translate)?;
        u64::try_from(value).map_err(|_| damaged(column, "is negative"))
    }

    fn flag(&self, column: &str) -> Result<bool> {
        self.try_get::<i64, _>(column).map(|value| value != 0).map_err(translate)
    }

    fn optional_integer(&self, column: &str) -> Result<Option<i64>> {
        self.try_get(column).map_err(translate)
    }

    fn optional_real(&self, column: &str) -> Result<Option<f64>> {
        self.try_get(column).map_err(translate)
    }

    fn optional_digest(&self, column: &str) -> Result<Option<Digest>> {
        let bytes: Option<&[u8]> = self.try_get(column).map_err(translate)?;
        let digest = bytes.map(|bytes| bytes.try_into().map(Digest)).transpose();
        digest.map_err(|_| damaged(column, "is not a digest of 32 bytes"))
    }
}

fn damaged(column: &str, problem: impl Display) -> StoreError {
    StoreError::Corrupt(format!("column {column:?} {problem}"))
}

/// Binds values that columns hold in another form.
pub(super) trait Bind<'q>: Sized {
    fn digest(self, digest: Digest) -> Self;
    fn time(self, at: Timestamp) -> Self;
    /// The parameters `?1`, `?2`, `?3`: task, number, attempt.
    fn attempt(self, key: RoundKey, attempt: u32) -> Self;
}

impl<'q> Bind<'q> for Query<'q> {
    fn digest(self, digest: Digest) -> Self {
        self.bind(digest.0.to_vec())
    }

    fn time(self, at: Timestamp) -> Self {
        self.bind(at.0)
    }

    fn attempt(self, key: RoundKey, attempt: u32) -> Self {
        self.bind(key.task.0).bind(key.number).bind(attempt)
    }
}

/// As JSON, for a column or for `json_each`.
pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(StoreError::fault)
}

/// A list of ids for `unhex(value) … json_each`: one statement for any number of them.
pub(super) fn json_ids(ids: &[ParticipantId]) -> Result<String> {
    json(&ids.iter().map(|id| id.0.simple().to_string()).collect::<Vec<_>>())
}

/// A list of names for `value … json_each`.
pub(super) fn json_names<T: Display>(values: &[T]) -> Result<String> {
    json(&values.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// A number of bytes or elements, as SQLite holds it.
pub(super) fn integer(value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| StoreError::fault(format!("{value} does not fit a column")))
}
