//! Retention of model versions: keeps the newest, pinned and still needed ones.

use federation::gate::{Measured, last_kept};
use federation::round::{Round, RoundState};
use federation::time::Timestamp;
use store::entity::round::RoundMetric;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};

/// Number of earlier rounds whose measurements are compared.
const LOOK_BACK: u32 = 1024;

/// Releases the files of a task's versions beyond its `retain`, unless they are promoted or may still be needed by a round, a participant
/// or a rollback. Garbage collection then removes them. Returns their number.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn retire(tx: &mut Transaction<'_>, task: &TaskRow, now: Timestamp) -> Result<u32, StoreError> {
    let Some(retain) = task.spec.retain else { return Ok(0) };
    // Participants training ahead may still have to fetch their base version.
    let staleness = task.spec.ahead().map_or(0, |ahead| ahead.staleness.max);
    let kept = retain.last.max(staleness.saturating_add(1));
    let below = task.model_version.saturating_add(1).saturating_sub(kept);
    if below == 0 {
        return Ok(0);
    }
    let good = match &task.spec.aggregation.gate {
        Some(gate) => {
            let past = measurements(tx, task, &gate.metric, None).await?;
            last_kept(gate, &past.into_iter().flatten().collect::<Vec<_>>())
        }
        None => None,
    };
    let except: Vec<_> = good.into_iter().chain(task.promoted_version).collect();
    tx.remove_versions(task.id, below, &except, now).await
}

/// The cohorts' measurements of their base versions in the task's completed rounds, before `before` if given, oldest first. `None` for a
/// round in which nobody measured.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn measurements(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    metric: &str,
    before: Option<u32>,
) -> Result<Vec<Option<Measured>>, StoreError> {
    let rows = tx.rounds(task.id, before, LOOK_BACK).await?;
    let completed = rows.iter().rev().filter(|row| row.round.state == RoundState::Completed);
    Ok(completed.map(|row| measured(metric, &row.round, &row.metrics)).collect())
}

/// The measurement of one version: by the round that started from it, which is the next after the one that published it. `None` if that
/// round has not completed, or nobody measured in it.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn measurement_of(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    metric: &str,
    version: u32,
) -> Result<Option<Measured>, StoreError> {
    let rows = tx.rounds(task.id, Some(version.saturating_add(2)), 1).await?;
    let row = rows.iter().find(|row| row.round.base_version == version && row.round.state == RoundState::Completed);
    Ok(row.and_then(|row| measured(metric, &row.round, &row.metrics)))
}

/// A cohort's measurement of its base version.
pub(crate) fn measured(metric: &str, round: &Round, metrics: &[RoundMetric]) -> Option<Measured> {
    let metric = metrics.iter().find(|measured| measured.name == metric)?;
    Some(Measured { version: round.base_version, value: metric.value })
}
