//! Explains to operators why a value of a task cannot be read.

use serde_json::Value;

use crate::TaskSpec;
use crate::problem::{in_words, quoted_as};

/// Explains serde's `error` about the value of `key` in the words of operators ([`in_words`]); where the value must be one
/// of some words, lists them.
#[must_use]
pub fn said_of(task: &Value, key: &str, error: &str) -> String {
    words_in_place_of(task, key, error).unwrap_or_else(|| in_words(error))
}

/// The explanation with the list of words, if `error` is about a word. Serde lists the words only if the value is a string, so a string
/// replaces it.
fn words_in_place_of(task: &Value, key: &str, error: &str) -> Option<String> {
    let asks = ["expected variant identifier", "expected string or map", "wanted string or table"];
    let is_bare = error.starts_with("invalid type: unit variant, expected ");
    let is_empty = error.starts_with("wanted exactly 1 element");
    if !is_bare && !is_empty && !asks.iter().any(|ask| error.ends_with(ask)) {
        return None;
    }
    let mut task = task.clone();
    let value = task.pointer_mut(&pointer(key))?;
    let quoted = quoted_as(value);
    let word = value.as_str().filter(|_| is_bare).map(str::to_owned);
    // Words of a task contain no blanks.
    let given = format!("a value: {value}");
    *value = Value::String(given.clone());
    let refusal = serde_json::from_value::<TaskSpec>(task).err()?.to_string();
    let words = refusal.strip_prefix(&format!("unknown variant `{given}`, "))?;
    Some(match word {
        Some(word) => format!("`{word}` has keys of its own, as in {{ {word} = {{ … }} }}; {words}"),
        None => format!("invalid type: {quoted}, {words}"),
    })
}

/// The pointer (RFC 6901) of a dotted path; numbers in brackets are positions in a list.
fn pointer(key: &str) -> String {
    format!("/{}", key.replace(['.', '['], "/").replace(']', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_be_a_word_is_told_with_the_words() {
        let modes = "expected one of `sync`, `semi_sync`, `buffered`";
        for (task, key, error, said) in [
            (
                serde_json::json!({ "schedule": { "mode": 7 } }),
                "schedule.mode",
                "wanted string or table",
                format!("invalid type: integer `7`, {modes}"),
            ),
            (
                serde_json::json!({ "schedule": { "mode": true } }),
                "schedule.mode",
                "invalid type: boolean `true`, expected string or map",
                format!("invalid type: boolean `true`, {modes}"),
            ),
            (
                serde_json::json!({ "training": { "solver": { "name": 7 } } }),
                "training.solver.name",
                "invalid type: integer `7`, expected variant identifier",
                "invalid type: integer `7`, expected `fed_nova` or `scaffold`".to_owned(),
            ),
            (
                serde_json::json!({ "name": "a", "model": { "tensors": [{ "name": "w", "shape": [2], "init": 7 }] } }),
                "model.tensors[0].init",
                "invalid type: integer `7`, expected string or map",
                "invalid type: integer `7`, expected one of `zeros`, `ones`, `constant`, `uniform`, `normal`".to_owned(),
            ),
            (
                serde_json::json!({ "name": "a", "model": { "tensors": [{ "name": "w", "shape": [2], "init": {} }] } }),
                "model.tensors[0].init",
                "wanted exactly 1 element, found 0 elements",
                "invalid type: map, expected one of `zeros`, `ones`, `constant`, `uniform`, `normal`".to_owned(),
            ),
            (
                serde_json::json!({ "name": "a", "model": { "tensors": [{ "name": "w", "shape": [2], "init": "uniform" }] } }),
                "model.tensors[0].init",
                "invalid type: unit variant, expected struct variant",
                "`uniform` has keys of its own, as in { uniform = { … } }; expected one of `zeros`, `ones`, `constant`, `uniform`, `normal`".to_owned(),
            ),
        ] {
            assert_eq!(said_of(&task, key, error), said);
        }
        let task = serde_json::json!({ "rounds": { "count": "ten" } });
        let error = "invalid type: string \"ten\", expected u32";
        assert_eq!(said_of(&task, "rounds.count", error), in_words(error));
        let error = "invalid type: integer `7`, expected variant identifier";
        assert_eq!(said_of(&task, "no.such", error), in_words(error), "the words are not known");
    }
}
