//! The accelerators that coordinators used for sums.

use std::collections::BTreeMap;

use federation::device_reason::DeviceReason;
use federation::id::TaskId;
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A device of a coordinator, and its work on the released sums of rounds. A robust rule in the clear compares inputs in place of adding
/// them; its results of older coordinators name no device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceView {
    /// As [`sum_device`](super::SumWorkView::sum_device) names it.
    pub device: String,
    /// The coordinator that has it, as [`coordinator`](super::SumWorkView::coordinator) names it; absent for sums of older coordinators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<String>,
    /// Number of sums, at most one for each attempt at a round, that it added or unmasked.
    pub sums: u64,
    /// Number of sums that it added, by the reason for its choice; sums of older coordinators are left out.
    pub summed_because: BTreeMap<DeviceReason, u64>,
    /// Number of sums that it unmasked, by the reason for its choice; sums of older coordinators are left out.
    pub unmasked_because: BTreeMap<DeviceReason, u64>,
    /// The newest of its sums.
    pub last: DeviceSum,
    /// Which device failed, and how, in the newest of its sums at which one did; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<String>,
}

/// A released sum, by the attempt at a round that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceSum {
    pub task: TaskId,
    pub round: u32,
    pub attempt: u32,
    /// When the sum was released.
    pub at: Timestamp,
}
