//! Devices that worked on released sums. They have no rows of their own: the sums name them.

use std::collections::BTreeMap;

use federation::device_reason::DeviceReason;
use federation::id::{Attempt, TaskId};
use federation::time::Timestamp;

use super::token::TaskScope;
use crate::driver::{FromRow, Row};
use crate::error::Result;
use crate::transaction::Transaction;

/// A device and the coordinator that has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceName {
    pub device: String,
    /// `None` if the sums do not tell.
    pub coordinator: Option<String>,
}

/// What a device did of sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    pub name: DeviceName,
    /// Number of sums that it added or unmasked.
    pub sums: u64,
    /// Number of sums that it added, by why it was that device. Sums of programs that did not say why are left out.
    pub added: BTreeMap<DeviceReason, u64>,
    /// Number of sums that it unmasked, by why it was that device, likewise.
    pub unmasked: BTreeMap<DeviceReason, u64>,
    /// The newest of these sums.
    pub last: Attempt,
    /// When that was released.
    pub last_at: Timestamp,
    /// Which device failed, and how, in the newest of these sums at which one did.
    pub last_failure: Option<String>,
}

/// Of which sums devices are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFilter {
    /// Only those of this task.
    pub task: Option<TaskId>,
    /// Only those that were released then or later.
    pub since: Option<Timestamp>,
    /// Only those within what whoever asks may see.
    pub scope: TaskScope,
}

impl DeviceName {
    /// Both names as columns have them, where the empty text is none.
    fn columns(&self) -> (&str, &str) {
        (&self.device, self.coordinator.as_deref().unwrap_or_default())
    }
}

/// From the parts that devices did of sums released at `?1` or later: one row for each sum and each device of it.
macro_rules! parts {
    ($columns:literal, $tasks:literal, $condition:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM (SELECT sum_device AS device, coalesce(coordinator, '') AS coordinator, task, number, attempt,
                           created_at, device_failure, sum_because AS added,
                           CASE WHEN unmask_device = sum_device THEN unmask_because END AS unmasked
                    FROM noised_sum WHERE sum_device IS NOT NULL
                    UNION ALL
                    SELECT unmask_device, coalesce(coordinator, ''), task, number, attempt,
                           created_at, device_failure, NULL, unmask_because
                    FROM noised_sum WHERE unmask_device <> sum_device) AS part
              WHERE created_at >= ?1 ",
            $tasks,
            $condition
        )
    };
}

/// Devices after the names `?2` and `?3`.
macro_rules! devices {
    ($tasks:literal) => {
        concat!(
            "SELECT device, coordinator, task, number, attempt, created_at, sums, failure FROM (",
            parts!(
                "part.*, count(*) OVER (PARTITION BY device, coordinator) AS sums,
                 row_number() OVER (PARTITION BY device, coordinator
                                    ORDER BY created_at DESC, task DESC, number DESC, attempt DESC) AS nth,
                 first_value(device_failure) OVER (PARTITION BY device, coordinator
                                                   ORDER BY device_failure IS NULL, created_at DESC, task DESC,
                                                            number DESC, attempt DESC) AS failure",
                $tasks,
                "AND (device, coordinator) > (?2, ?3)"
            ),
            ") AS one WHERE nth = 1 ORDER BY device, coordinator LIMIT ?4"
        )
    };
}

/// Why devices from the names `?2` and `?3` up to `?4` and `?5` did their parts.
macro_rules! reasons {
    ($tasks:literal) => {
        parts!(
            "device, coordinator, added, unmasked, count(*) AS sums",
            $tasks,
            "AND (device, coordinator) >= (?2, ?3) AND (device, coordinator) <= (?4, ?5)
             GROUP BY device, coordinator, added, unmasked"
        )
    };
}

impl Transaction<'_> {
    /// The devices of the sums that a filter takes, by their names and their coordinators' names. Reads all of these sums.
    pub async fn devices(
        &mut self,
        filter: &DeviceFilter,
        after: Option<&DeviceName>,
        limit: u32,
    ) -> Result<Vec<DeviceUse>> {
        let since = filter.since.unwrap_or(Timestamp(i64::MIN));
        let (tasks, after) = (filter.scope.tasks(filter.task), after.map_or(("", ""), DeviceName::columns));
        let mut devices: Vec<DeviceUse> = match &tasks {
            None => self.list(devices!(""), (since, after, limit)).await?,
            Some(tasks) if tasks.is_empty() => Vec::new(),
            Some(tasks) => self.list(devices!("AND task IN {?5 task:bytes} "), (since, after, limit, tasks)).await?,
        };
        let (Some(first), Some(last)) = (devices.first(), devices.last()) else { return Ok(devices) };
        let (first, last) = (first.name.columns(), last.name.columns());
        let reasons: Vec<Reasons> = match &tasks {
            None => self.list(reasons!(""), (since, first, last)).await?,
            Some(tasks) => self.list(reasons!("AND task IN {?6 task:bytes} "), (since, first, last, tasks)).await?,
        };
        let mut by_name = BTreeMap::<DeviceName, [BTreeMap<DeviceReason, u64>; 2]>::new();
        for Reasons { name, added, unmasked, sums } in reasons {
            let [of_added, of_unmasked] = by_name.entry(name).or_default();
            for (counts, reason) in [(of_added, added), (of_unmasked, unmasked)] {
                if let Some(reason) = reason {
                    *counts.entry(reason).or_default() += sums;
                }
            }
        }
        for device in &mut devices {
            [device.added, device.unmasked] = by_name.remove(&device.name).unwrap_or_default();
        }
        Ok(devices)
    }
}

/// Why a device did its parts of so many sums.
struct Reasons {
    name: DeviceName,
    added: Option<DeviceReason>,
    unmasked: Option<DeviceReason>,
    sums: u64,
}

impl FromRow for DeviceName {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let coordinator: String = row.get("coordinator")?;
        Ok(Self { device: row.get("device")?, coordinator: Some(coordinator).filter(|name| !name.is_empty()) })
    }
}

/// Without the reasons.
impl FromRow for DeviceUse {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            name: DeviceName::from_row(row)?,
            sums: row.get("sums")?,
            added: BTreeMap::new(),
            unmasked: BTreeMap::new(),
            last: Attempt::from_row(row)?,
            last_at: row.get("created_at")?,
            last_failure: row.get("failure")?,
        })
    }
}

impl FromRow for Reasons {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (added, unmasked) = (row.get("added")?, row.get("unmasked")?);
        Ok(Self { name: DeviceName::from_row(row)?, added, unmasked, sums: row.get("sums")? })
    }
}
