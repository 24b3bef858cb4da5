//! Devices that worked on released sums, read from the rows of those sums.

use std::collections::BTreeMap;

use federation::device_reason::DeviceReason;
use federation::id::{Attempt, TaskId};
use federation::time::Timestamp;

use super::token::TaskScope;
use crate::driver::{FromRow, Row};
use crate::error::{Result, StoreError};
use crate::transaction::Transaction;

/// A device and the coordinator that has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceName {
    pub device: String,
    /// `None` for sums of programs that did not record it.
    pub coordinator: Option<String>,
}

/// The part that a device had in sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    pub name: DeviceName,
    /// Number of sums that it added or unmasked.
    pub sums: u64,
    /// Number of sums that it added, by the reason for its choice. Sums without a recorded reason are left out.
    pub added: BTreeMap<DeviceReason, u64>,
    /// Number of sums that it unmasked, by the reason for its choice, likewise.
    pub unmasked: BTreeMap<DeviceReason, u64>,
    /// The newest of these sums.
    pub last: Attempt,
    /// When that sum was released.
    pub last_at: Timestamp,
    /// Which device failed, and how, in the newest of these sums at which one did.
    pub last_failure: Option<String>,
}

/// The sums whose devices are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFilter {
    /// Only those of this task.
    pub task: Option<TaskId>,
    /// Only those that were released then or later.
    pub since: Option<Timestamp>,
    /// Only those of tasks that the operator may see.
    pub scope: TaskScope,
}

impl DeviceName {
    /// Device and coordinator as the columns hold them: the empty text if the coordinator is unknown.
    fn columns(&self) -> (&str, &str) {
        (&self.device, self.coordinator.as_deref().unwrap_or_default())
    }
}

/// Selects from the sums released at `?1` or later, with one row for each sum and each device that worked on it.
macro_rules! parts {
    ($columns:literal, $tasks:literal, $condition:literal) => {
        concat!(
            "SELECT device, coordinator, ",
            $columns,
            " FROM (SELECT sum_device AS device, coalesce(coordinator, '') AS coordinator, task, created_at,
                           CASE WHEN device_failure IS NOT NULL THEN created_at END AS failed_at,
                           sum_because AS added,
                           CASE WHEN unmask_device = sum_device THEN unmask_because END AS unmasked
                    FROM noised_sum WHERE sum_device IS NOT NULL
                    UNION ALL
                    SELECT unmask_device, coalesce(coordinator, ''), task, created_at,
                           CASE WHEN device_failure IS NOT NULL THEN created_at END, NULL, unmask_because
                    FROM noised_sum WHERE unmask_device <> sum_device) AS part
              WHERE created_at >= ?1 ",
            $tasks,
            $condition
        )
    };
}

/// The first `?4` devices after the device `?2` of the coordinator `?3`, with their counts and times.
macro_rules! devices {
    ($tasks:literal) => {
        parts!(
            "count(*) AS sums, max(created_at) AS last_at, max(failed_at) AS failed_at",
            $tasks,
            "AND (device, coordinator) > (?2, ?3)
             GROUP BY device, coordinator ORDER BY device, coordinator LIMIT ?4"
        )
    };
}

/// Reasons, with counts, for the devices from `?2` of `?3` up to `?4` of `?5`.
macro_rules! reasons {
    ($tasks:literal) => {
        parts!(
            "added, unmasked, count(*) AS sums",
            $tasks,
            "AND (device, coordinator) >= (?2, ?3) AND (device, coordinator) <= (?4, ?5)
             GROUP BY device, coordinator, added, unmasked"
        )
    };
}

/// The sums of given devices that were released at given times.
macro_rules! moments {
    ($tasks:literal) => {
        concat!(
            "SELECT asked.place, item.task, item.number, item.attempt, item.created_at, item.device_failure
             FROM {?1 place:integer at:integer device:text coordinator:text} AS asked CROSS JOIN noised_sum AS item
                ON item.created_at = asked.at AND asked.device IN (item.sum_device, item.unmask_device)
                   AND asked.coordinator = coalesce(item.coordinator, '') ",
            $tasks,
            "ORDER BY asked.place, item.task, item.number, item.attempt"
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
        let found: Vec<Found> = match &tasks {
            None => self.list(devices!(""), (since, after, limit)).await?,
            Some(tasks) if tasks.is_empty() => Vec::new(),
            Some(tasks) => self.list(devices!("AND task IN {?5 task:bytes} "), (since, after, limit, tasks)).await?,
        };
        let (Some(first), Some(last)) = (found.first(), found.last()) else { return Ok(Vec::new()) };
        let (first, last) = (first.name.columns(), last.name.columns());
        let reasons: Vec<Reasons> = match &tasks {
            None => self.list(reasons!(""), (since, first, last)).await?,
            Some(tasks) => self.list(reasons!("AND task IN {?6 task:bytes} "), (since, first, last, tasks)).await?,
        };
        let asked: Vec<_> = (0_u32..).zip(&found).flat_map(|(place, found)| found.moments(place)).collect();
        let sums: Vec<Released> = match &tasks {
            None => self.list(moments!(""), &asked).await?,
            Some(tasks) => self.list(moments!("WHERE item.task IN {?2 task:bytes} "), (&asked, tasks)).await?,
        };
        uses(found, reasons, sums)
    }
}

/// A device with its number of sums, when the newest was released, and when the newest at which a device failed.
struct Found {
    name: DeviceName,
    sums: u64,
    last_at: Timestamp,
    failed_at: Option<Timestamp>,
}

/// The reasons for a device in a number of sums.
struct Reasons {
    name: DeviceName,
    added: Option<DeviceReason>,
    unmasked: Option<DeviceReason>,
    sums: u64,
}

/// A sum of the device at `place` in a list.
struct Released {
    place: u32,
    attempt: Attempt,
    created_at: Timestamp,
    device_failure: Option<String>,
}

columns!(Released { place, attempt, created_at, device_failure });

impl Found {
    /// Times to look up for the device at `place`: its newest sum, and the newest at which a device failed.
    fn moments(&self, place: u32) -> impl Iterator<Item = (u32, Timestamp, &str, &str)> {
        let (device, coordinator) = self.name.columns();
        let before = self.failed_at.filter(|at| *at != self.last_at);
        std::iter::once(self.last_at).chain(before).map(move |at| (place, at, device, coordinator))
    }
}

/// Joins devices, reasons and sums. Of several sums released at the same time the last one counts.
fn uses(found: Vec<Found>, reasons: Vec<Reasons>, sums: Vec<Released>) -> Result<Vec<DeviceUse>> {
    let mut counts = BTreeMap::<DeviceName, [BTreeMap<DeviceReason, u64>; 2]>::new();
    for Reasons { name, added, unmasked, sums } in reasons {
        let [of_added, of_unmasked] = counts.entry(name).or_default();
        for (of, reason) in [(of_added, added), (of_unmasked, unmasked)] {
            if let Some(reason) = reason {
                *of.entry(reason).or_default() += sums;
            }
        }
    }
    let (mut last, mut failures) = (BTreeMap::new(), BTreeMap::new());
    for Released { place, attempt, created_at, device_failure } in sums {
        last.insert((place, created_at), attempt);
        if let Some(failure) = device_failure {
            failures.insert((place, created_at), failure);
        }
    }
    let device = |(place, Found { name, sums, last_at, failed_at }): (u32, Found)| {
        let [added, unmasked] = counts.remove(&name).unwrap_or_default();
        let last = last.remove(&(place, last_at)).ok_or_else(|| StoreError::fault("a sum that is not there"))?;
        let last_failure = failed_at.and_then(|at| failures.remove(&(place, at)));
        Ok::<_, StoreError>(DeviceUse { name, sums, added, unmasked, last, last_at, last_failure })
    };
    (0..).zip(found).map(device).collect()
}

impl FromRow for DeviceName {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let coordinator: String = row.get("coordinator")?;
        Ok(Self { device: row.get("device")?, coordinator: Some(coordinator).filter(|name| !name.is_empty()) })
    }
}

impl FromRow for Found {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (last_at, failed_at) = (row.get("last_at")?, row.get("failed_at")?);
        Ok(Self { name: DeviceName::from_row(row)?, sums: row.get("sums")?, last_at, failed_at })
    }
}

impl FromRow for Reasons {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (added, unmasked) = (row.get("added")?, row.get("unmasked")?);
        Ok(Self { name: DeviceName::from_row(row)?, added, unmasked, sums: row.get("sums")? })
    }
}
