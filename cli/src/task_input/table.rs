//! A task as a table of JSON, put together from layers before it is read once.

use serde_json::{Map, Value};

/// A task file, or a part of one.
pub(super) type Table = Map<String, Value>;

/// Parses `text` as a TOML value, or as a number in another notation, else as a string.
pub(super) fn value(text: &str) -> Value {
    let toml = || {
        let mut table: toml::Table = toml::from_str(&format!("value = {text}")).ok()?;
        // A line break would start another key.
        if table.len() > 1 { None } else { json(table.remove("value")?) }
    };
    let whole = || text.parse::<u64>().ok().map(Value::from);
    let real = || text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from);
    toml().or_else(whole).or_else(real).unwrap_or_else(|| text.into())
}

/// The same in JSON; `None` if it holds a number that is not finite, which JSON cannot express, or a date, which tasks
/// do not use.
fn json(value: toml::Value) -> Option<Value> {
    Some(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => Value::Number(serde_json::Number::from_f64(number)?),
        toml::Value::Boolean(value) => value.into(),
        toml::Value::Datetime(_) => return None,
        toml::Value::Array(values) => values.into_iter().map(json).collect::<Option<Vec<_>>>()?.into(),
        toml::Value::Table(table) => Value::Object(object(table)?),
    })
}

/// A whole table in JSON, under the same conditions.
pub(super) fn object(table: toml::Table) -> Option<Table> {
    table.into_iter().map(|(key, value)| Some((key, json(value)?))).collect()
}

/// The value at a dotted path.
pub(super) fn get<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    let mut keys = path.split('.');
    let first = table.get(keys.next()?)?;
    keys.try_fold(first, |value, key| value.get(key))
}

/// Sets the value at a dotted path. Intermediate values that are not tables are replaced by tables.
pub(super) fn set(table: &mut Table, path: &str, value: Value) {
    let Some((section, rest)) = path.split_once('.') else {
        table.insert(path.to_owned(), value);
        return;
    };
    let entry = table.entry(section).or_insert(Value::Null);
    if !entry.is_object() {
        *entry = Value::Object(Table::new());
    }
    if let Value::Object(inner) = entry {
        set(inner, rest, value);
    }
}

/// Removes `key` from `section`.
pub(super) fn remove(table: &mut Table, section: &str, key: &str) {
    if let Some(Value::Object(section)) = table.get_mut(section) {
        section.remove(key);
    }
}

/// Overlays `upper` on `lower`: merges a section key by key, each with its whole value.
pub(super) fn cover(lower: &mut Table, upper: Table) {
    for (section, value) in upper {
        match (lower.get_mut(&section), value) {
            (Some(Value::Object(keys)), Value::Object(above)) => keys.extend(above),
            (_, value) => {
                lower.insert(section, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_those_of_toml_or_text() {
        for (text, expected) in [
            ("7", json!(7)),
            ("-0.5", json!(-0.5)),
            (".5", json!(0.5)),
            ("1e3", json!(1000.0)),
            ("18446744073709551615", json!(u64::MAX)),
            ("true", json!(true)),
            ("rounds", json!("rounds")),
            ("\"7\"", json!("7")),
            ("[1, \"a\"]", json!([1, "a"])),
            ("{ poisson = 0.25 }", json!({ "poisson": 0.25 })),
            // A value that JSON cannot express stays text instead of becoming null: a bound would be lost in silence.
            ("inf", json!("inf")),
            ("nan", json!("nan")),
            ("[nan]", json!("[nan]")),
            ("", json!("")),
            ("1\nother = 2", json!("1\nother = 2")),
            ("1979-05-27", json!("1979-05-27")),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn paths_lead_into_tables_and_layers_cover_key_by_key() {
        let mut table = Table::new();
        set(&mut table, "selection.strategy", "uniform".into());
        set(&mut table, "selection.strategy.oort.alpha", 1.into());
        assert_eq!(get(&table, "selection.strategy.oort"), Some(&json!({ "alpha": 1 })));
        assert_eq!(get(&table, "selection.cohort.count"), None);
        let Value::Object(upper) = json!({ "selection": { "cohort": { "fraction": 0.5 } }, "name": "x" }) else {
            panic!()
        };
        set(&mut table, "selection.cohort.count", 3.into());
        cover(&mut table, upper);
        let expected = json!({ "strategy": { "oort": { "alpha": 1 } }, "cohort": { "fraction": 0.5 } });
        assert_eq!((table.get("selection"), table.get("name")), (Some(&expected), Some(&"x".into())));
    }
}
