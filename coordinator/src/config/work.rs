//! `[work]`: background work.

use serde::{Deserialize, Serialize};

use super::require::require;

/// Maximum length of a coordinator's name, in characters.
const NAME_MAX: usize = 128;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkSection {
    /// Whether this process works on rounds, or only serves.
    pub enabled: bool,
    /// Interval between surveys for work without a wake-up.
    pub poll_interval_ms: u64,
    /// Time without a renewal after which a worker loses its step to another.
    pub lease_ttl_ms: u64,
    /// Name of this process in records of sums, to distinguish coordinators. Default: the machine's host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Default for WorkSection {
    fn default() -> Self {
        Self { enabled: true, poll_interval_ms: 1000, lease_ttl_ms: 30_000, name: None }
    }
}

/// Whether a coordinator's name is valid: 1 to 128 characters without control characters.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.chars().count()) && !name.chars().any(char::is_control)
}

impl WorkSection {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        require(
            problems,
            (1..=60_000).contains(&self.poll_interval_ms),
            "work.poll_interval_ms: must be between 1 and 60000",
        );
        require(
            problems,
            (1000..=3_600_000).contains(&self.lease_ttl_ms),
            "work.lease_ttl_ms: must be between 1000 and 3600000",
        );
        require(
            problems,
            self.name.as_deref().is_none_or(is_name),
            "work.name: must be 1 to 128 characters, and no control characters",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_can_be_printed() {
        let problems = |name: &str| {
            let mut problems = Vec::new();
            WorkSection { name: Some(name.to_owned()), ..WorkSection::default() }.check(&mut problems);
            problems.len()
        };
        for name in ["north", "tributary-7f9c-x2", "Süd 1", &"ü".repeat(128)] {
            assert_eq!(problems(name), 0, "{name}");
        }
        for name in ["", "a\nb", "a\0", &"n".repeat(129)] {
            assert_eq!(problems(name), 1, "{name}");
        }
    }
}
