//! Noised sums: the one released sum of an attempt. Its row decides; everything later is a pure function of it.

use federation::device_reason::DeviceReason;
use federation::id::{Attempt, Digest};
use federation::time::Timestamp;

use crate::driver::{FromRow, Row};
use crate::error::Result;
use crate::transaction::Transaction;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoisedSumRow {
    pub attempt: Attempt,
    /// Address of the sum's blob.
    pub blob: Digest,
    /// Number of inputs in it.
    pub participants: u32,
    pub created_at: Timestamp,
    /// The cost, if it was measured.
    pub work: Option<SumWork>,
}

/// The cost of a sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SumWork {
    /// Name of the coordinator whose devices these are; `None` for sums of programs that did not record it.
    pub coordinator: Option<String>,
    /// Device that added the inputs, or compared them for a robust rule in the clear.
    pub sum_device: String,
    /// Why that one; of programs that did not say, `None`.
    pub sum_because: Option<DeviceReason>,
    /// Device that generated the masks.
    pub unmask_device: String,
    /// Why that device was chosen; `None` in rows without a reason.
    pub unmask_because: Option<DeviceReason>,
    /// The device that failed at it, and how, if one did.
    pub device_failure: Option<String>,
    /// Time of adding or comparing, in milliseconds.
    pub sum_ms: u64,
    /// Time of removing the masks, in milliseconds.
    pub unmask_ms: u64,
    /// Bytes of keystream generated.
    pub keystream_bytes: u64,
}

columns!(SumWork {
    coordinator,
    sum_device,
    sum_because,
    unmask_device,
    unmask_because,
    device_failure,
    sum_ms,
    unmask_ms,
    keystream_bytes
});

impl Transaction<'_> {
    /// Stores the sum. Returns false if the attempt already has one, which stays.
    ///
    /// # Errors
    /// `BeingRemoved`.
    pub async fn insert_noised_sum(&mut self, sum: &NoisedSumRow) -> Result<bool> {
        let work = sum.work.as_ref();
        self.must_not_be_doomed(sum.blob).await?;
        self.change_one(
            "INSERT INTO noised_sum (task, number, attempt, blob, participants, created_at,
                                     sum_device, unmask_device, sum_ms, unmask_ms, keystream_bytes,
                                     sum_because, unmask_because, device_failure, coordinator)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
             ON CONFLICT (task, number, attempt) DO NOTHING",
            (
                (sum.attempt, sum.blob, sum.participants, sum.created_at),
                work.map(|work| &work.sum_device),
                work.map(|work| &work.unmask_device),
                work.map(|work| work.sum_ms),
                work.map(|work| work.unmask_ms),
                work.map(|work| work.keystream_bytes),
                (
                    work.and_then(|work| work.sum_because),
                    work.and_then(|work| work.unmask_because),
                    work.and_then(|work| work.device_failure.as_ref()),
                    work.and_then(|work| work.coordinator.as_ref()),
                ),
            ),
        )
        .await
    }

    /// The sum of an attempt.
    pub async fn noised_sum(&mut self, attempt: Attempt) -> Result<Option<NoisedSumRow>> {
        self.find("SELECT * FROM noised_sum WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }
}

impl FromRow for NoisedSumRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            attempt: Attempt::from_row(row)?,
            blob: row.get("blob")?,
            participants: row.get("participants")?,
            created_at: row.get("created_at")?,
            work: Option::from_row(row)?,
        })
    }
}

impl FromRow for Option<SumWork> {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let measured = row.get::<Option<String>>("sum_device")?.is_some();
        measured.then(|| SumWork::from_row(row)).transpose()
    }
}
