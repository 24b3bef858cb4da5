//! The keys of a task with their values, as `--set` takes them.

use std::collections::BTreeMap;

use crate::TaskSpec;
use serde_json::Value;

/// Every key with a value: `aggregation.optimizer.name`, and `fed_adam`.
///
/// # Errors
/// A number of the task is not finite.
pub fn keys(spec: &TaskSpec) -> serde_json::Result<BTreeMap<String, String>> {
    let mut keys = BTreeMap::new();
    flatten(String::new(), &serde_json::to_value(spec)?, &mut keys);
    Ok(keys)
}

fn flatten(key: String, value: &Value, keys: &mut BTreeMap<String, String>) {
    let text = match value {
        Value::Null => return,
        Value::Object(fields) => {
            for (part, value) in fields {
                let key = if key.is_empty() { part.clone() } else { format!("{key}.{part}") };
                flatten(key, value, keys);
            }
            return;
        }
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => value.to_string(),
    };
    keys.insert(key, text);
}
