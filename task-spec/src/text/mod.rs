//! Textual forms of a task: its keys, the presets, and explanations of unreadable values.

pub(super) mod keys;
pub(super) mod preset;
pub(super) mod said;
