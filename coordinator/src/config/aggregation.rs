//! `[aggregation]`: which device sums.

use aggregation::device::DeviceChoice;
use serde::{Deserialize, Serialize};

use super::require::require;

/// Which device sums.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AggregationConfig {
    /// `auto` takes the best that is present, `cpu` is always there; `cuda[:N]` and `wgpu[:NAME]` where they are built in.
    pub device: String,
    /// Threads of the CPU; 0 takes one per core.
    pub threads: u32,
}

impl Default for AggregationConfig {
    fn default() -> Self {
        Self { device: "auto".to_owned(), threads: 0 }
    }
}

impl AggregationConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        if let Err(error) = self.device.parse::<DeviceChoice>() {
            problems.push(format!("aggregation.device: {error}"));
        }
        require(problems, self.threads <= 1024, "aggregation.threads: must be at most 1024");
    }
}
