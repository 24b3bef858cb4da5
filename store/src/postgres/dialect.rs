//! SQL of PostgreSQL: parameters are `$1`, a list is an array for each of its columns, and tables are read from arrays.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::error::{Result, StoreError};

/// A statement in PostgreSQL's words.
pub(super) struct DialectSql {
    pub(super) sql: String,
    /// The bound values of each argument, in order.
    pub(super) arguments: Vec<Argument>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    Value,
    /// An array for each column.
    Columns(Vec<Kind>),
}

/// The type of a list's column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bytes,
    Integer,
    Real,
    Text,
}

impl Kind {
    fn parse(name: &str) -> Result<Self> {
        match name {
            "bytes" => Ok(Self::Bytes),
            "integer" => Ok(Self::Integer),
            "real" => Ok(Self::Real),
            "text" => Ok(Self::Text),
            _ => Err(StoreError::fault(format!("a list's column of kind {name:?}"))),
        }
    }

    fn array(self) -> &'static str {
        match self {
            Self::Bytes => "bytea[]",
            Self::Integer => "bigint[]",
            Self::Real => "double precision[]",
            Self::Text => "text[]",
        }
    }
}

/// A statement, spelt once.
pub(super) fn spell(sql: &'static str) -> Result<&'static DialectSql> {
    static KNOWN: LazyLock<Mutex<HashMap<(usize, usize), &'static DialectSql>>> = LazyLock::new(Mutex::default);
    let key = (sql.as_ptr().addr(), sql.len());
    if let Some(spelt) = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(spelt);
    }
    let spelt = Box::leak(Box::new(spelt(sql)?));
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(key, spelt);
    Ok(spelt)
}

fn spelt(sql: &str) -> Result<DialectSql> {
    let parts = parts(sql)?;
    let mut arguments = Vec::new();
    for part in &parts {
        let (number, argument) = match part {
            Part::Text(_) | Part::TextOf(..) | Part::Now => continue,
            Part::Argument(number) | Part::Carries(_, number) => (*number, Argument::Value),
            Part::List(number, columns) => {
                (*number, Argument::Columns(columns.iter().map(|(_, kind)| *kind).collect()))
            }
        };
        if arguments.len() < number {
            arguments.resize(number, Argument::Value);
        }
        arguments[number - 1] = argument;
    }
    let first =
        |number: usize| -> usize { 1 + arguments[..number - 1].iter().map(Argument::parameters).sum::<usize>() };
    let mut sql = String::with_capacity(2 * sql.len());
    for part in &parts {
        // Writing to a `String` does not fail.
        let _ = match part {
            // SQLite alone takes the order of a `CROSS JOIN` as an order to follow, and lets it have a condition.
            Part::Text(text) => write!(sql, "{}", text.replace("CROSS JOIN", "JOIN")),
            Part::Argument(number) => write!(sql, "${}", first(*number)),
            // Several times as fast as parsing each text, for queries of every row.
            Part::Carries(labels, number) => {
                write!(sql, "CAST({labels} AS jsonb) @> CAST(CAST(${} AS text) AS jsonb)", first(*number))
            }
            Part::TextOf(object, name) => write!(sql, "(CAST({object} AS jsonb) ->> '{name}')"),
            // The time of the statement, not of its transaction.
            Part::Now => write!(sql, "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"),
            Part::List(number, columns) => {
                let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
                let arrays: Vec<_> = (first(*number)..)
                    .zip(columns)
                    .map(|(parameter, (_, kind))| format!("${parameter}::{}", kind.array()))
                    .collect();
                write!(sql, "(SELECT * FROM unnest({}) AS list ({}))", arrays.join(", "), names.join(", "))
            }
        };
    }
    Ok(DialectSql { sql, arguments })
}

impl Argument {
    fn parameters(&self) -> usize {
        match self {
            Self::Value => 1,
            Self::Columns(kinds) => kinds.len(),
        }
    }
}

/// A piece of a statement. Arguments are numbered from 1.
enum Part<'s> {
    Text(&'s str),
    Argument(usize),
    /// Whether the object of texts in a column has all that are in an argument.
    Carries(&'s str, usize),
    /// The text of a name in the object in a column.
    TextOf(&'s str, &'s str),
    Now,
    List(usize, Vec<(&'s str, Kind)>),
}

/// Cuts a statement at its parameters and at its tables: see [`Query::sql`](crate::driver::Query::sql). A `?` without a
/// number is the next one.
fn parts(sql: &str) -> Result<Vec<Part<'_>>> {
    let (mut parts, mut rest, mut unnumbered) = (Vec::new(), sql, 0);
    while let Some(at) = rest.find(['?', '{']) {
        let (before, after) = rest.split_at(at);
        parts.push(Part::Text(before));
        if let Some(table) = after.strip_prefix('{') {
            let (notation, after) =
                table.split_once('}').ok_or_else(|| StoreError::fault("a table of a statement does not end"))?;
            parts.push(table_of(notation)?);
            rest = after;
            continue;
        }
        let after = &after[1..];
        let digits = after.len() - after.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
        let number = if digits == 0 { unnumbered + 1 } else { number(&after[..digits])? };
        unnumbered = number;
        parts.push(Part::Argument(number));
        rest = &after[digits..];
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

fn table_of(notation: &str) -> Result<Part<'_>> {
    let mut words = notation.split_whitespace();
    let source = words.next().unwrap_or_default();
    if source == "now" {
        return Ok(Part::Now);
    }
    if source == "carries" {
        let (labels, wanted) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        return Ok(Part::Carries(labels, number(wanted.strip_prefix('?').unwrap_or_default())?));
    }
    if source == "text" {
        let (Some(object), Some(name)) = (words.next(), words.next()) else {
            return Err(StoreError::fault("a text without its object and its name"));
        };
        return Ok(Part::TextOf(object, name));
    }
    let columns = words.filter_map(|column| column.split_once(':'));
    let columns: Result<_> = columns.map(|(name, kind)| Ok((name, Kind::parse(kind)?))).collect();
    Ok(Part::List(number(source.strip_prefix('?').unwrap_or_default())?, columns?))
}

fn number(digits: &str) -> Result<usize> {
    digits.parse().ok().filter(|number| *number > 0).ok_or_else(|| StoreError::fault("a parameter without a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_an_array_for_each_column_and_what_follows_is_counted_on() {
        let told = spelt(
            "INSERT INTO t SELECT ?1, id, n FROM {?2 id:bytes n:integer} AS new WHERE id IN {?4 id:bytes} AND x = ?3 OR ?1",
        )
        .unwrap();
        assert_eq!(
            told.sql,
            "INSERT INTO t SELECT $1, id, n \
             FROM (SELECT * FROM unnest($2::bytea[], $3::bigint[]) AS list (id, n)) AS new \
             WHERE id IN (SELECT * FROM unnest($5::bytea[]) AS list (id)) AND x = $4 OR $1"
        );
        let columns = |kinds: &[Kind]| Argument::Columns(kinds.to_vec());
        assert_eq!(
            told.arguments,
            [Argument::Value, columns(&[Kind::Bytes, Kind::Integer]), Argument::Value, columns(&[Kind::Bytes])]
        );
    }

    #[test]
    fn marks_labels_and_joins_are_spelt() {
        let sql = |text| spelt(text).unwrap().sql;
        assert_eq!(sql("INSERT INTO t (a, b) VALUES (?, ?)"), "INSERT INTO t (a, b) VALUES ($1, $2)");
        assert_eq!(
            sql("SELECT 1 FROM p WHERE {carries p.labels ?1}"),
            "SELECT 1 FROM p WHERE CAST(p.labels AS jsonb) @> CAST(CAST($1 AS text) AS jsonb)"
        );
        assert_eq!(sql("WHERE {text actor name} = ?1"), "WHERE (CAST(actor AS jsonb) ->> 'name') = $1");
        assert_eq!(sql("SELECT {now}"), "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint");
        assert_eq!(sql("FROM a CROSS JOIN b ON a.x = b.x"), "FROM a JOIN b ON a.x = b.x");
        for wrong in [
            "SELECT {?1 id:digits}",
            "SELECT {?1 id:bytes",
            "SELECT {?x id:bytes}",
            "SELECT {carries a b}",
            "SELECT {text a}",
            "SELECT ?0",
        ] {
            assert!(matches!(spelt(wrong), Err(StoreError::Fault(_))), "{wrong}");
        }
    }
}
