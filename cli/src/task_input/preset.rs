//! Built-in tasks, for first experiments without a file.

use serde_json::Value;
use task_spec::PRESETS;

use super::table::object;

/// The text of a preset.
pub(super) fn text(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|known| known.name == name).map(|known| known.toml)
}

/// Defaults of a short flag's choice: keys of the task and their values.
///
/// # Errors
/// The built-in text is not TOML.
pub(super) fn defaults(flag: &str, name: &str) -> Result<Vec<(String, Value)>, String> {
    let all: toml::Table =
        toml::from_str(include_str!("../../presets/defaults.toml")).map_err(|error| error.to_string())?;
    let all = object(all).unwrap_or_default();
    let entry = all.get(flag).and_then(|names| names.get(name).or_else(|| names.get("*")));
    Ok(entry.and_then(Value::as_object).cloned().unwrap_or_default().into_iter().collect())
}

/// Help text of `--task`.
pub(super) fn help() -> String {
    format!(
        "A task to begin with: a file as for `tributary task create`, or one of the presets {}. What it leaves out is chosen \
         for the data and the participants",
        names()
    )
}

/// All names, as text.
pub(super) fn names() -> String {
    PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ")
}
