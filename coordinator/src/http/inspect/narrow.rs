//! Filters for lists: names, labels and times in queries.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use federation::time::Timestamp;
use serde::{Deserialize, Deserializer, de};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, OneOfBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::page::PageQuery;
use crate::http::reply::problem::{Error, Result};
use crate::times::parse_time;

/// A page of what has a state and a beginning.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct NarrowedQuery {
    /// `next_cursor` of the previous page.
    pub(super) cursor: Option<String>,
    /// Items per page, 1 to 500; default 50.
    #[param(minimum = 1, maximum = 500)]
    pub(super) limit: Option<u32>,
    /// States, separated by commas; default all.
    pub(super) state: Option<String>,
    /// Only tasks that were created then or later.
    #[param(inline)]
    pub(super) since: Option<When>,
}

impl NarrowedQuery {
    /// Splits the query into the page, the named states among `all`, and the time.
    pub(super) fn read<T: FromStr + Display>(self, all: &[T]) -> Result<(PageQuery, Vec<T>, Option<Timestamp>)> {
        let Self { cursor, limit, state, since } = self;
        Ok((PageQuery { cursor, limit }, named("state", state.as_deref(), all)?, since.map(|When(since)| since)))
    }
}

/// Parses a comma-separated list of values; empty if absent.
pub(super) fn named<T: FromStr + Display>(parameter: &str, names: Option<&str>, all: &[T]) -> Result<Vec<T>> {
    let known = |name: &str| {
        name.trim().parse::<T>().map_err(|_| {
            let all: Vec<_> = all.iter().map(ToString::to_string).collect();
            Error::InvalidValue(format!("{parameter}: there is none called {name:?}, only {}", all.join(", ")))
        })
    };
    names.map_or_else(|| Ok(Vec::new()), |names| names.split(',').map(known).collect())
}

/// Parses labels of the form `NAME=VALUE`, each name once.
pub(super) fn labels(wanted: &[String]) -> Result<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    for text in wanted {
        let refused = |why: &str| Error::InvalidValue(format!("label: {why}"));
        let (name, value) = text.split_once('=').ok_or_else(|| refused("it is NAME=VALUE"))?;
        if name.contains('\0') || value.contains('\0') {
            return Err(refused("no label contains U+0000"));
        }
        if labels.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(refused("each name at most once: no participant has two values of one label"));
        }
    }
    Ok(labels)
}

/// A time in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct When(pub(super) Timestamp);

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        parse_time(&String::deserialize(deserializer)?).map(Self).map_err(de::Error::custom)
    }
}

impl PartialSchema for When {
    fn schema() -> RefOr<Schema> {
        let format =
            |kind, format| ObjectBuilder::new().schema_type(kind).format(Some(SchemaFormat::KnownFormat(format)));
        OneOfBuilder::new()
            .item(format(Type::Integer, KnownFormat::Int64))
            .item(format(Type::String, KnownFormat::DateTime))
            .into()
    }
}

impl ToSchema for When {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_told_apart() {
        let read = |wanted: &[&str]| labels(&wanted.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&["region=eu", "url=a=b"]).unwrap()["url"], "a=b");
        for refused in [&["region"][..], &["a=1", "a=2"], &["a=\0"]] {
            assert!(matches!(read(refused), Err(Error::InvalidValue(_))), "{refused:?}");
        }
    }
}
