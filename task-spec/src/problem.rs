//! Problems of a task specification: all of them at once, each with a valid alternative.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde::de::Unexpected;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Constraints that the deployment imposes on every task.
#[derive(Clone, Copy, Debug)]
pub struct Deployment {
    /// Maximum time between two polls of a participant.
    pub poll_interval_ms: u64,
}

/// One problem of a task specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{field}: {problem}")]
pub struct SpecError {
    /// Dotted path in the task file.
    pub field: String,
    /// The problem, with a valid alternative.
    pub problem: String,
}

/// Translates an error about an unreadable value into the operators' terms for kinds of numbers.
#[must_use]
pub fn in_words(error: &str) -> String {
    let whole = ["u8", "u16", "u32", "u64", "usize"].map(|code| (code, "a whole number, 0 or more"));
    let signed = ["i8", "i16", "i32", "i64"].map(|code| (code, "a whole number"));
    let other = [
        ("f32", "a number"),
        ("f64", "a number"),
        ("a boolean", "true or false"),
        ("a map", "a table of keys"),
        ("variant identifier", "a word"),
        ("string or map", "a word, or a table of keys"),
    ];
    let kinds = whole.into_iter().chain(signed).chain(other);
    let variant = "expected struct variant ";
    let error = match error.split_once(variant) {
        // The name of the code's type follows.
        Some((before, after)) if !after.contains('\n') => format!("{before}expected a table of keys"),
        Some(_) | None => error.to_owned(),
    };
    kinds.fold(error, |told, (code, words)| {
        let (expected, told_as) = (format!("expected {code}"), format!("expected {words}"));
        told.lines()
            .map(|line| match line.strip_suffix(&expected) {
                Some(before) => format!("{before}{told_as}"),
                None => line.to_owned(),
            })
            .collect::<Vec<_>>()
            .join("\n")
    })
}

/// The dotted path of the value that a serde error is about, given its `path`. For a table whose contents depend on a word in it (`name`,
/// `kind`, `codec`, `method`), serde reads the table as a whole and forgets the key of a value. The key is then the only one whose value
/// the error quotes, if it is unique.
#[must_use]
pub fn wrong_key(task: &Value, path: &str, error: &str) -> String {
    let quoted = error.split_once(": ").and_then(|(_, told)| told.rsplit_once(", expected ")).map(|(value, _)| value);
    let table = path.split('.').try_fold(task, |value, key| value.get(key)).and_then(Value::as_object);
    // An error that quotes a table may be about the whole.
    let values = table.into_iter().flatten().filter(|(_, value)| !value.is_object());
    let mut alike = values.filter(|(_, value)| Some(quoted_as(value).as_str()) == quoted);
    match (alike.next(), alike.next()) {
        (Some((key, _)), None) => format!("{path}.{key}"),
        _ => path.to_owned(),
    }
}

/// A value as serde quotes it.
pub(crate) fn quoted_as(value: &Value) -> String {
    let quoted = match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(value), _) => Unexpected::Unsigned(value),
            (None, Some(value)) => Unexpected::Signed(value),
            (None, None) => Unexpected::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    };
    quoted.to_string()
}

/// The problems found so far.
#[derive(Default)]
pub(crate) struct Checks(Vec<SpecError>);

impl Checks {
    pub(crate) fn found(self) -> Result<(), Vec<SpecError>> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }

    pub(crate) fn require(&mut self, holds: bool, field: &str, problem: &str) {
        self.require_with(holds, field, || problem.to_owned());
    }

    pub(crate) fn require_with(&mut self, holds: bool, field: &str, problem: impl FnOnce() -> String) {
        if !holds {
            self.0.push(SpecError { field: field.to_owned(), problem: problem() });
        }
    }

    /// A number must be in `range`, if it is given.
    pub(crate) fn within<T: PartialOrd + Display>(
        &mut self,
        value: impl Into<Option<T>>,
        range: RangeInclusive<T>,
        field: &str,
    ) {
        let (least, most) = (range.start(), range.end());
        let holds = value.into().is_none_or(|value| range.contains(&value));
        self.require_with(holds, field, || format!("must be between {least} and {most}"));
    }

    /// The same for an optional number.
    pub(crate) fn within_or_none<T: PartialOrd + Display>(
        &mut self,
        value: Option<T>,
        range: RangeInclusive<T>,
        field: &str,
    ) {
        let (least, most) = (range.start(), range.end());
        let holds = value.is_none_or(|value| range.contains(&value));
        self.require_with(holds, field, || format!("must be between {least} and {most}, or left out"));
    }

    /// A number must be positive and finite, if it is given.
    pub(crate) fn positive(&mut self, value: impl Into<Option<f64>>, field: &str) {
        let holds = value.into().is_none_or(|value| value.is_finite() && value > 0.0);
        self.require(holds, field, "must be positive and finite");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_numbers_are_said_as_operators_call_them() {
        for (code, words) in [
            (
                "invalid type: string \"ten\", expected u32",
                "invalid type: string \"ten\", expected a whole number, 0 or more",
            ),
            ("at line 3\nexpected f64\n", "at line 3\nexpected a number"),
            ("invalid type: integer `1`, expected a boolean", "invalid type: integer `1`, expected true or false"),
            ("unknown field `u8`, expected `u16`", "unknown field `u8`, expected `u16`"),
            ("invalid type: map, expected variant identifier", "invalid type: map, expected a word"),
        ] {
            assert_eq!(in_words(code), words);
        }
    }

    #[test]
    fn the_key_of_a_table_that_a_word_tells_the_kind_of_is_found() {
        let task = serde_json::json!({ "aggregation": { "optimizer": {
            "name": "fed_adam", "learning_rate": "ten", "beta1": "nine", "beta2": "nine", "tau": [1.5]
        } } });
        let path = "aggregation.optimizer";
        for (error, key) in [
            ("invalid type: string \"ten\", expected f64", "aggregation.optimizer.learning_rate"),
            ("invalid type: sequence, expected f64", "aggregation.optimizer.tau"),
            ("invalid type: string \"nine\", expected f64", path),
            ("invalid type: integer `1`, expected f64", path),
            ("unknown field `taw`, expected `tau`", path),
        ] {
            assert_eq!(wrong_key(&task, path, error), key);
        }
        let error = "invalid type: string \"ten\", expected f64";
        assert_eq!(
            wrong_key(&task, "aggregation.optimizer.learning_rate", error),
            "aggregation.optimizer.learning_rate"
        );
        assert_eq!(wrong_key(&task, "no.such", error), "no.such");
        let error = "invalid type: map, expected u32";
        assert_eq!(wrong_key(&task, "aggregation", error), "aggregation", "it is no number, whatever is in it");
    }

    #[test]
    fn ranges_are_said_as_operators_write_numbers() {
        let mut checks = Checks::default();
        checks.within(0_u32, 1..=10_000_000, "a");
        checks.within(0.51, 0.0..=0.5, "b");
        checks.within(f64::NAN, 0.0..=10.0, "c");
        checks.within(Some(33_u32), 16..=32, "d");
        checks.within_or_none(Some(0.5), 1.0..=1e6, "e");
        checks.positive(f64::INFINITY, "f");
        checks.positive(0.0, "g");
        // The range includes both ends, and an absent value is valid.
        checks.within(1_u32, 1..=10, "-");
        checks.within(0.5, 0.0..=0.5, "-");
        checks.within(None, 1_u32..=10, "-");
        checks.within_or_none(None, 1_u32..=10, "-");
        checks.positive(None, "-");
        let found: Vec<_> = checks.found().unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "a: must be between 1 and 10000000",
                "b: must be between 0 and 0.5",
                "c: must be between 0 and 10",
                "d: must be between 16 and 32",
                "e: must be between 1 and 1000000, or left out",
                "f: must be positive and finite",
                "g: must be positive and finite",
            ]
        );
    }
}
