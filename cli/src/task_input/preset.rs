//! Tasks that come with the executable: what people try first, without a file of their own.

use serde_json::Value;

use super::table::object;

/// Name and text of every preset. None has a model: the demo takes the data's, a task of one's own names one.
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

/// What a short flag fills in beside the name that it was given: keys of the task and their values.
///
/// # Errors
/// The text that comes with the executable is no TOML.
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

/// All names, for people.
pub(super) fn names() -> String {
    PRESETS.map(|(name, _)| name).join(", ")
}
