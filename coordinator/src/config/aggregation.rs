//! `[aggregation]`: the device for summing.

use aggregation::device::DeviceChoice;
use serde::{Deserialize, Serialize};

use super::require::require;

/// The device for summing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AggregationConfig {
    /// `auto` selects the best device present, `cpu` is always available; `cuda[:N]` and `wgpu[:NAME]` need a build with their support.
    pub device: String,
    /// CPU threads; 0 means one per core.
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
