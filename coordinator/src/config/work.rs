//! `[work]`: background work.

use serde::{Deserialize, Serialize};

use super::require::require;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkSection {
    /// Whether this process works on rounds, or only serves.
    pub enabled: bool,
    /// Work is looked for this often even if nothing woke us.
    pub poll_interval_ms: u64,
    /// A worker that is not heard of for so long has lost its step to another.
    pub lease_ttl_ms: u64,
}

impl Default for WorkSection {
    fn default() -> Self {
        Self { enabled: true, poll_interval_ms: 1000, lease_ttl_ms: 30_000 }
    }
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
    }
}
