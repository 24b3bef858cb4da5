//! How values are stored in columns, and bound to parameters.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use bytes::Bytes;
use federation::cohort::CoarseLoss;
use federation::device_reason::DeviceReason;
use federation::event::{Actor, EventKind, Facts};
use federation::id::{Attempt, Digest, ParticipantId, SignInId, TaskId, TokenId};
use federation::round::{AssignmentState, FailureReason, RoundLimits, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use task_spec::TaskSpec;
use uuid::Uuid;

use crate::error::{Result, StoreError};

/// A value of a parameter or of a column.
pub(crate) enum Value<'v> {
    Null,
    Integer(i64),
    Real(f64),
    Text(Cow<'v, str>),
    Blob(Cow<'v, [u8]>),
    /// Rows of this many columns, one after the other: see [`Query::sql`](super::Query::sql).
    List {
        width: usize,
        values: Vec<Value<'v>>,
    },
}

/// Values for the next parameters of a statement, in their order: `?1`, `?2` and so on.
pub(crate) trait Bind: Send + Sync {
    fn bind<'q>(&'q self, to: &mut Vec<Value<'q>>) -> Result<()>;
}

/// A value of one column.
pub(crate) trait Column: Sized + Send + 'static {
    /// # Errors
    /// The error of the column, as in "column … is NULL".
    fn from_value(value: &Value<'_>) -> Read<Self>;
}

/// The value of a column, or its error.
pub(crate) type Read<T> = std::result::Result<T, String>;

/// A value or a list as JSON, for a column.
pub(crate) struct Json<T>(pub(crate) T);

/// JSON for an argument that several statements take.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(StoreError::fault)
}

/// A value from a column of JSON.
pub(crate) fn document<T: DeserializeOwned>(value: &Value<'_>) -> Read<T> {
    serde_json::from_str(text(value)?).map_err(|error| error.to_string())
}

fn integer(value: &Value<'_>) -> Read<i64> {
    if let Value::Integer(number) = value { Ok(*number) } else { Err(unlike(value, "integer")) }
}

fn real(value: &Value<'_>) -> Read<f64> {
    if let Value::Real(number) = value { Ok(*number) } else { Err(unlike(value, "real number")) }
}

fn text<'v>(value: &'v Value<'_>) -> Read<&'v str> {
    if let Value::Text(text) = value { Ok(text) } else { Err(unlike(value, "text")) }
}

fn blob<'v>(value: &'v Value<'_>) -> Read<&'v [u8]> {
    if let Value::Blob(bytes) = value { Ok(bytes) } else { Err(unlike(value, "blob")) }
}

fn unlike(value: &Value<'_>, wanted: &str) -> String {
    if matches!(value, Value::Null) { "is NULL".into() } else { format!("is no {wanted}") }
}

fn too_large(number: u64) -> StoreError {
    StoreError::fault(format!("{number} does not fit a column"))
}

fn narrow<T: TryFrom<i64>>(value: &Value<'_>, bits: u32) -> Read<T> {
    T::try_from(integer(value)?).map_err(|_| format!("does not fit {bits} bits"))
}

/// A value that is stored by its name.
pub(crate) fn parse<T: FromStr<Err: Display>>(value: &Value<'_>) -> Read<T> {
    text(value)?.parse().map_err(|error: T::Err| error.to_string())
}

impl Value<'_> {
    pub(crate) fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Integer(number) => Value::Integer(number),
            Self::Real(number) => Value::Real(number),
            Self::Text(text) => Value::Text(text.into_owned().into()),
            Self::Blob(bytes) => Value::Blob(bytes.into_owned().into()),
            Self::List { width, values } => {
                Value::List { width, values: values.into_iter().map(Value::into_owned).collect() }
            }
        }
    }
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(text: &'v str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl<'v> From<&'v [u8]> for Value<'v> {
    fn from(bytes: &'v [u8]) -> Self {
        Self::Blob(bytes.into())
    }
}

/// Types of columns: `Type: |value| as it is bound, |column| as it is read`.
macro_rules! values {
    ($($type:ty: |$value:ident| $bound:expr $(, |$column:ident| $read:expr)?;)+) => { $(
        impl crate::driver::Bind for $type {
            fn bind<'q>(&'q self, to: &mut Vec<crate::driver::Value<'q>>) -> crate::error::Result<()> {
                let $value = self;
                to.push($bound.into());
                Ok(())
            }
        }

        $(impl crate::driver::Column for $type {
            fn from_value($column: &crate::driver::Value<'_>) -> crate::driver::Read<Self> {
                $read
            }
        })?
    )+ };
}

values! {
    bool: |flag| Value::Integer((*flag).into()), |column| Ok(integer(column)? != 0);
    u16: |number| Value::Integer((*number).into()), |column| narrow(column, 16);
    u32: |number| Value::Integer((*number).into()), |column| narrow(column, 32);
    u64: |number| Value::Integer(i64::try_from(*number).map_err(|_| too_large(*number))?),
        |column| Self::try_from(integer(column)?).map_err(|_| "is negative".into());
    f64: |number| Value::Real(*number), |column| real(column);
    str: |text| text;
    String: |text| text.as_str(), |column| text(column).map(str::to_owned);
    [u8]: |bytes| bytes;
    Vec<u8>: |bytes| &**bytes, |column| blob(column).map(<[u8]>::to_vec);
    Bytes: |bytes| &**bytes, |column| blob(column).map(Self::copy_from_slice);
    Digest: |digest| &digest.0[..],
        |column| blob(column)?.try_into().map(Self).map_err(|_| "is not a digest of 32 bytes".into());
    Timestamp: |at| Value::Integer(at.0), |column| integer(column).map(Self);
    Uuid: |id| &id.as_bytes()[..],
        |column| Self::from_slice(blob(column)?).map_err(|_| "is not an id of 16 bytes".into());
    TaskId: |id| &id.0.as_bytes()[..], |column| Uuid::from_value(column).map(Self);
    ParticipantId: |id| &id.0.as_bytes()[..], |column| Uuid::from_value(column).map(Self);
    CoarseLoss: |loss| Value::Integer(u8::from(*loss).into()),
        |column| Self::try_from(narrow::<u8>(column, 8)?).map_err(|error| error.to_string());
    TokenId: |id| &id.0.as_bytes()[..], |column| Uuid::from_value(column).map(Self);
    SignInId: |id| &id.0.as_bytes()[..], |column| Uuid::from_value(column).map(Self);
    BTreeMap<String, String>: |labels| json(labels)?, |column| document(column);
    RoundLimits: |limits| json(limits)?, |column| document(column);
    TaskSpec: |spec| json(spec)?, |column| document(column);
    Actor: |actor| json(actor)?, |column| document(column);
    Facts: |facts| json(facts)?, |column| document(column);
}

/// Enums, stored by their names.
macro_rules! names {
    ($($type:ty),+) => { values! { $($type: |name| name.as_str(), |column| crate::driver::parse(column);)+ } };
}

names!(AssignmentState, DeviceReason, EventKind, FailureReason, RoundState, TaskStatus);

impl<T: Serialize + Send + Sync> Bind for Json<T> {
    fn bind<'q>(&'q self, to: &mut Vec<Value<'q>>) -> Result<()> {
        to.push(json(&self.0)?.into());
        Ok(())
    }
}

impl<T: DeserializeOwned + Send + 'static> Column for Json<T> {
    fn from_value(column: &Value<'_>) -> Read<Self> {
        document(column).map(Self)
    }
}

/// The parameters `?1`, `?2`, `?3`, if it is first: task, number, attempt.
impl Bind for Attempt {
    fn bind<'q>(&'q self, to: &mut Vec<Value<'q>>) -> Result<()> {
        self.task.bind(to)?;
        self.round.bind(to)?;
        self.attempt.bind(to)
    }
}

/// For lists that begin after an id, where there is one: the empty blob is before every id.
pub(crate) struct After<T>(pub(crate) Option<T>);

impl<T: Bind> Bind for After<T> {
    fn bind<'q>(&'q self, to: &mut Vec<Value<'q>>) -> Result<()> {
        match &self.0 {
            Some(id) => id.bind(to),
            None => {
                to.push(Value::Blob(Cow::Borrowed(&[])));
                Ok(())
            }
        }
    }
}

/// For lists that end before a number, where there is one: any above 32 bits is after every number.
pub(crate) struct Before(pub(crate) Option<u32>);

impl Bind for Before {
    fn bind<'q>(&'q self, to: &mut Vec<Value<'q>>) -> Result<()> {
        to.push(Value::Integer(self.0.map_or(i64::MAX, i64::from)));
        Ok(())
    }
}

impl<T: Bind> Bind for Option<T> {
    fn bind<'q>(&'q self, to: &mut Vec<Value<'q>>) -> Result<()> {
        match self {
            Some(value) => value.bind(to),
            None => {
                to.push(Value::Null);
                Ok(())
            }
        }
    }
}

impl<T: Column> Column for Option<T> {
    fn from_value(column: &Value<'_>) -> Read<Self> {
        if matches!(column, Value::Null) { Ok(None) } else { T::from_value(column).map(Some) }
    }
}

/// A list for a table in a statement.
impl<T: Bind> Bind for [T] {
    fn bind<'q>(&'q self, to: &mut Vec<Value<'q>>) -> Result<()> {
        let mut values = Vec::with_capacity(self.len());
        for row in self {
            row.bind(&mut values)?;
        }
        to.push(Value::List { width: values.len().checked_div(self.len()).unwrap_or(1), values });
        Ok(())
    }
}

impl<T: Bind> Bind for Vec<T> {
    fn bind<'q>(&'q self, to: &mut Vec<Value<'q>>) -> Result<()> {
        self[..].bind(to)
    }
}

impl<T: Bind + ?Sized> Bind for &T {
    fn bind<'q>(&'q self, to: &mut Vec<Value<'q>>) -> Result<()> {
        (**self).bind(to)
    }
}

macro_rules! tuples {
    ($(($($type:ident $position:tt),*))+) => { $(
        impl<$($type: Bind),*> Bind for ($($type,)*) {
            fn bind<'q>(&'q self, to: &mut Vec<Value<'q>>) -> Result<()> {
                $(self.$position.bind(to)?;)*
                Ok(())
            }
        }
    )+ };
}

tuples! {
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

impl Bind for () {
    fn bind<'q>(&'q self, _: &mut Vec<Value<'q>>) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::driver::{Backend as _, FromRow, Mode, Record as _};
    use crate::entity::admitted::Admitted;
    use crate::sqlite::SqliteBackend;
    use crate::transaction::Transaction;

    /// The first row of a query in a database in memory, which answers without waiting.
    fn first<T: FromRow>(sql: &'static str, arguments: impl Bind) -> Result<Option<T>> {
        let database = SqliteBackend::open_memory()?;
        let driver = database.begin("test", Mode::Read).now_or_never().unwrap()?;
        Transaction::new(driver, Mode::Read).find(sql, arguments).now_or_never().unwrap()
    }

    fn told<T: FromRow>(sql: &'static str) -> String {
        match first::<T>(sql, ()) {
            Err(StoreError::Corrupt(error)) => error.to_string(),
            Err(error) => format!("{error:?}"),
            Ok(_) => "nothing".to_owned(),
        }
    }

    #[test]
    fn a_column_that_holds_something_else_is_told_by_its_name() {
        assert_eq!(told::<u32>("SELECT NULL AS cohort"), r#"column "cohort" is NULL"#);
        assert_eq!(told::<Option<u32>>("SELECT NULL AS cohort"), "nothing");
        assert_eq!(told::<Option<u32>>("SELECT 'three' AS cohort"), r#"column "cohort" is no integer"#);
        assert_eq!(told::<u32>("SELECT 1 << 32 AS cohort"), r#"column "cohort" does not fit 32 bits"#);
        assert_eq!(told::<u64>("SELECT -1 AS bytes"), r#"column "bytes" is negative"#);
        assert_eq!(told::<(u64, Digest)>("SELECT 1, x'00' AS blob"), r#"column "blob" is not a digest of 32 bytes"#);
        assert_eq!(told::<TaskId>("SELECT x'00' AS id"), r#"column "id" is not an id of 16 bytes"#);
        assert_eq!(told::<String>("SELECT CAST(x'ff' AS TEXT) AS name"), r#"column "name" is not UTF-8"#);
        assert!(told::<RoundState>("SELECT 'RESTING' AS state").contains(r#"column "state" "#));
        assert!(told::<Attempt>("SELECT x'00' AS tasks").contains("yields no column"));
    }

    #[test]
    fn values_are_read_as_they_were_bound() {
        let attempt = Attempt { task: TaskId(Uuid::from_u128(7)), round: 3, attempt: 2 };
        assert_eq!(first("SELECT ?1 AS task, ?2 AS number, ?3 AS attempt", attempt).unwrap(), Some(attempt));
        let values = (RoundState::Sharing, None::<Timestamp>, Digest([9; 32]), 0.5);
        assert_eq!(first("SELECT ?1, ?2, ?3, ?4", values).unwrap(), Some(values));
        let names = "SELECT group_concat(name) FROM {?1 name:text} AS list";
        assert_eq!(
            first(names, &[TaskStatus::Active, TaskStatus::Paused][..]).unwrap(),
            Some("ACTIVE,PAUSED".to_owned())
        );
        let who = ParticipantId(Uuid::from_u128(5));
        assert_eq!(first("SELECT id FROM {?1 id:bytes} AS list", &[who][..]).unwrap(), Some(who));
        assert!(matches!(first::<u64>("SELECT ?1", u64::MAX), Err(StoreError::Fault(_))));
    }

    #[test]
    fn a_record_is_inserted_with_the_columns_that_it_is_read_from() {
        assert_eq!(
            Admitted::INSERT_IF_ABSENT,
            "INSERT INTO admitted (task, number, attempt, participant, sha256, bytes, accepted_at, folded) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        );
        assert_eq!(Admitted::INSERT_IF_ABSENT.strip_suffix(" ON CONFLICT DO NOTHING"), Some(Admitted::INSERT));
    }
}
