//! Values as PostgreSQL's parameters and columns, in its binary format.

use std::borrow::Cow;

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgRow, PgTypeInfo};
use sqlx::{Arguments as _, Encode, Postgres, Row as _, Type, ValueRef as _};

use super::dialect::{Argument, Kind};
use crate::driver::{Read, Value, Values};
use crate::error::{Result, StoreError};

// Oids of built-in types: `SELECT oid, typname FROM pg_type`.
const BOOL: u32 = 16;
const BYTEA: u32 = 17;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const TEXT: u32 = 25;
const FLOAT8: u32 = 701;
const UNKNOWN: u32 = 705;

/// Parameters of a statement from its arguments.
pub(super) fn bind(spelt: &[Argument], arguments: &[Value<'_>]) -> Result<PgArguments> {
    if spelt.len() != arguments.len() {
        let problem = format!("a statement of {} arguments is given {}", spelt.len(), arguments.len());
        return Err(StoreError::fault(problem));
    }
    let mut parameters = PgArguments::default();
    for (argument, value) in spelt.iter().zip(arguments) {
        match (argument, value) {
            (Argument::Value, value) => add(&mut parameters, value)?,
            (Argument::Columns(kinds), Value::List { width, values }) => {
                if !values.is_empty() && *width != kinds.len() {
                    return Err(StoreError::fault(format!("a list of {width} columns for {}", kinds.len())));
                }
                for (column, kind) in kinds.iter().enumerate() {
                    add_column(&mut parameters, *kind, values.iter().skip(column).step_by(kinds.len()))?;
                }
            }
            (Argument::Columns(_), _) => return Err(StoreError::fault("a value for a list")),
        }
    }
    Ok(parameters)
}

fn add(to: &mut PgArguments, value: &Value<'_>) -> Result<()> {
    match value {
        Value::Null => to.add(Null),
        Value::Integer(number) => to.add(*number),
        Value::Real(number) => to.add(*number),
        Value::Text(text) => to.add(&*without_nul(text)),
        Value::Blob(bytes) => to.add(&**bytes),
        Value::List { .. } => return Err(StoreError::fault("a list is no value")),
    }
    .map_err(StoreError::Fault)
}

fn add_column<'v>(to: &mut PgArguments, kind: Kind, values: impl Iterator<Item = &'v Value<'v>>) -> Result<()> {
    /// The column's values of one variant; another one is a fault.
    macro_rules! array {
        ($variant:ident, $value:ident => $element:expr) => {{
            let element = |value: &'v Value<'v>| match value {
                Value::Null => Ok(None),
                Value::$variant($value) => Ok(Some($element)),
                _ => Err(StoreError::fault(format!("a list's value is no {kind:?}"))),
            };
            to.add(values.map(element).collect::<Result<Vec<_>>>()?)
        }};
    }
    match kind {
        Kind::Bytes => array!(Blob, bytes => &**bytes),
        Kind::Integer => array!(Integer, number => *number),
        Kind::Real => array!(Real, number => *number),
        Kind::Text => array!(Text, text => without_nul(text).into_owned()),
    }
    .map_err(StoreError::Fault)
}

/// PostgreSQL's texts cannot hold U+0000, which a participant may put into its own words.
fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

/// A NULL of the type that the statement expects.
struct Null;

impl Type<Postgres> for Null {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(UNKNOWN))
    }
}

impl Encode<'_, Postgres> for Null {
    fn encode_by_ref(&self, _: &mut PgArgumentBuffer) -> std::result::Result<IsNull, BoxDynError> {
        Ok(IsNull::Yes)
    }
}

impl Values for PgRow {
    fn value(&self, position: usize) -> Read<Value<'_>> {
        let value = self.try_get_raw(position).map_err(|error| error.to_string())?;
        if value.is_null() {
            return Ok(Value::Null);
        }
        let oid = value.type_info().oid().map_or(0, |oid| oid.0);
        let bytes = value.as_bytes().map_err(|error| error.to_string())?;
        Ok(match oid {
            BOOL => Value::Integer(i64::from(number::<1>(bytes)?[0])),
            INT2 => Value::Integer(i16::from_be_bytes(number(bytes)?).into()),
            INT4 => Value::Integer(i32::from_be_bytes(number(bytes)?).into()),
            INT8 => Value::Integer(i64::from_be_bytes(number(bytes)?)),
            FLOAT8 => Value::Real(f64::from_be_bytes(number(bytes)?)),
            TEXT | UNKNOWN => Value::Text(std::str::from_utf8(bytes).map_err(|_| "is not UTF-8")?.into()),
            BYTEA => Value::Blob(bytes.into()),
            _ => return Err(format!("has a type that is not read here (oid {oid})")),
        })
    }
}

fn number<const N: usize>(bytes: &[u8]) -> Read<[u8; N]> {
    bytes.try_into().map_err(|_| format!("has {} bytes, not {N}", bytes.len()))
}
