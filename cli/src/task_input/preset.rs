//! Built-in tasks, for first experiments without a file.

use serde_json::Value;

use super::table::object;

/// Name and text of every preset. Presets have no model: the demo chooses one for the data, other tasks name one.
pub(super) const PRESETS: [(&str, &str); 6] = [
    ("asynchronous", include_str!("../../presets/asynchronous.toml")),
    ("compressed", include_str!("../../presets/compressed.toml")),
    ("heterogeneous", include_str!("../../presets/heterogeneous.toml")),
    ("personalized", include_str!("../../presets/personalized.toml")),
    ("private", include_str!("../../presets/private.toml")),
    ("robust", include_str!("../../presets/robust.toml")),
];

/// The text of a preset.
pub(super) fn text(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
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

/// What `--task` is about.
pub(super) fn help() -> String {
    format!(
        "A task to begin with: a file as for `tributary task create`, or one of the presets {}. What it leaves out is chosen \
         for the data and the participants",
        names()
    )
}

/// All names, as text.
pub(super) fn names() -> String {
    PRESETS.map(|(name, _)| name).join(", ")
}
