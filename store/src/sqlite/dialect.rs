//! SQL of SQLite: a list is an array of JSON, and tables are read from JSON.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{LazyLock, Mutex, PoisonError};

use serde::{Serialize, Serializer};

use crate::driver::{Query, Value, json};
use crate::error::Result;

/// A query without tables of lists and without lists.
pub(super) fn spell(query: Query<'_>) -> Result<Query<'_>> {
    let Query { sql, mut arguments } = query;
    for argument in &mut arguments {
        if matches!(argument, Value::List { .. }) {
            *argument = json(&JsonValue(argument))?.into();
        }
    }
    Ok(Query { sql: if sql.contains('{') { known(sql) } else { sql }, arguments })
}

/// A statement that has tables, in SQLite's words: made once.
fn known(sql: &'static str) -> &'static str {
    static KNOWN: LazyLock<Mutex<HashMap<(usize, usize), &'static str>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry((sql.as_ptr().addr(), sql.len())).or_insert_with(|| Box::leak(with_tables(sql).into_boxed_str()))
}

/// Replaces `{…}` by tables.
fn with_tables(sql: &str) -> String {
    let mut spelt = String::with_capacity(2 * sql.len());
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once('{') {
        let (table, after) = after.split_once('}').unwrap_or((after, ""));
        spelt += before;
        spelt += &table_of(table);
        rest = after;
    }
    spelt + rest
}

/// `carries X ?N`, `text X name` or `?N name:kind …`: see [`Query::sql`].
fn table_of(notation: &str) -> String {
    let mut words = notation.split_whitespace();
    let source = words.next().unwrap_or_default();
    if source == "now" {
        return "NULL".to_owned();
    }
    if source == "carries" {
        let (all, wanted) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        return format!(
            "NOT EXISTS (SELECT 1 FROM json_each({wanted}) AS wanted \
             WHERE NOT EXISTS (SELECT 1 FROM json_each({all}) AS carried \
             WHERE carried.key = wanted.key AND carried.value = wanted.value))"
        );
    }
    if source == "text" {
        let (object, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        return format!("({object} ->> '{name}')");
    }
    let columns: Vec<_> = words.filter_map(|column| column.split_once(':')).collect();
    let mut table = String::from("(SELECT ");
    for (position, (name, kind)) in columns.iter().enumerate() {
        let comma = if position == 0 { "" } else { ", " };
        let value = if columns.len() == 1 { "value".to_owned() } else { format!("value ->> {position}") };
        let value = if *kind == "bytes" { format!("unhex({value})") } else { value };
        let _ = write!(table, "{comma}{value} AS {name}");
    }
    table + " FROM json_each(" + source + "))"
}

/// A value in JSON: bytes in hexadecimal digits, rows of one column without a list of their own.
struct JsonValue<'v>(&'v Value<'v>);

impl Serialize for JsonValue<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => to.serialize_unit(),
            Value::Integer(number) => to.serialize_i64(*number),
            Value::Real(number) => to.serialize_f64(*number),
            Value::Text(text) => to.serialize_str(text),
            Value::Blob(bytes) => to.serialize_str(&hex::encode(bytes)),
            Value::List { width: 0 | 1, values } => to.collect_seq(values.iter().map(JsonValue)),
            Value::List { width, values } => to.collect_seq(values.chunks(*width).map(Columns)),
        }
    }
}

struct Columns<'v>(&'v [Value<'v>]);

impl Serialize for Columns<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(JsonValue))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_arrays_of_json_that_statements_read_as_tables() {
        let columns = "INSERT INTO t SELECT ?1, id, n FROM {?2 id:bytes n:integer} AS new WHERE id IN {?3 id:bytes}";
        let arguments = ("x", vec![(vec![0xab_u8, 1], 5_u32), (vec![], 6)], vec![vec![7_u8]]);
        let query = spell(Query::new(columns, &arguments).unwrap()).unwrap();
        assert_eq!(
            query.sql,
            "INSERT INTO t SELECT ?1, id, n \
             FROM (SELECT unhex(value ->> 0) AS id, value ->> 1 AS n FROM json_each(?2)) AS new \
             WHERE id IN (SELECT unhex(value) AS id FROM json_each(?3))"
        );
        let texts: Vec<_> =
            query.arguments.iter().map(|value| serde_json::to_string(&JsonValue(value)).unwrap()).collect();
        assert_eq!(texts, [r#""x""#, r#""[[\"ab01\",5],[\"\",6]]""#, r#""[\"07\"]""#]);
        assert_eq!(
            with_tables("WHERE {carries p.labels ?1}"),
            "WHERE NOT EXISTS (SELECT 1 FROM json_each(?1) AS wanted \
             WHERE NOT EXISTS (SELECT 1 FROM json_each(p.labels) AS carried \
             WHERE carried.key = wanted.key AND carried.value = wanted.value))"
        );
        assert_eq!(with_tables("SELECT {now}"), "SELECT NULL", "its process tells the time");
        assert_eq!(with_tables("WHERE {text actor name} = ?1"), "WHERE (actor ->> 'name') = ?1");
        let plain = spell(Query::new("SELECT 1", &()).unwrap()).unwrap();
        assert_eq!(plain.sql, "SELECT 1");
    }

    #[test]
    fn an_empty_list_is_an_empty_array() {
        let none = Vec::<u32>::new();
        let query = spell(Query::new("SELECT n FROM {?1 n:integer} AS list", &none).unwrap()).unwrap();
        assert!(matches!(&query.arguments[..], [Value::Text(text)] if text == "[]"));
    }
}
