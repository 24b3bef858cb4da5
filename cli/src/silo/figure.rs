//! Figures that say where they come from.

use serde::Serialize;

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// From other figures, by a rule.
    Computed,
    /// A rule of thumb or a data sheet: measure it.
    Assumed,
    /// As the user said.
    User,
}

/// A figure, where it comes from, and by which rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure<T> {
    pub(crate) value: T,
    pub(crate) from: Source,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) rule: String,
}

impl<T> Figure<T> {
    pub(crate) fn computed(value: T, rule: impl Into<String>) -> Self {
        Self { value, from: Source::Computed, rule: rule.into() }
    }

    pub(crate) fn assumed(value: T, rule: impl Into<String>) -> Self {
        Self { value, from: Source::Assumed, rule: rule.into() }
    }

    pub(crate) fn user(value: T) -> Self {
        Self { value, from: Source::User, rule: String::new() }
    }

    /// The user's, if there is one.
    pub(crate) fn given_or(given: Option<T>, otherwise: impl FnOnce() -> Self) -> Self {
        given.map_or_else(otherwise, Self::user)
    }
}
