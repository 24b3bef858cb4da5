//! The best version of a task: promotes it, and finds out whether the task still improves.

use federation::gate::best::{best, replaces};
use federation::time::Timestamp;
use store::Transaction;
use store::entity::task::TaskRow;

use super::StepError;
use crate::maintenance::retention::{measurement_of, measurements};

/// The outcome for a task after a completed round.
#[derive(Debug, Default)]
pub(super) struct Improvement {
    /// The version that is promoted now.
    pub(super) promoted: Option<u32>,
    /// Why the task ends before its last round.
    pub(super) end: Option<String>,
}

/// Promotes the version that a cohort has measured best, the newest completed round included. A version that an operator has promoted
/// stays, unless it was the best one before this round.
pub(super) async fn promote_best(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    now: Timestamp,
) -> Result<Improvement, StepError> {
    let mut improvement = Improvement { promoted: task.promoted_version, end: None };
    let Some(keep) = &task.spec.rounds.keep_best else { return Ok(improvement) };
    let mut measured = measurements(tx, task, &keep.metric, None).await?;
    if let Some(promoted) = task.promoted_version {
        let own = measurement_of(tx, task, &keep.metric, promoted).await?;
        // After many rounds without a better version, its measurement is older than those that are compared.
        if own.is_some() && !measured.contains(&own) {
            measured.insert(0, own);
        }
    }
    let Some(now_best) = best(keep.better, measured.iter().copied()) else { return Ok(improvement) };
    let version = now_best.measured.version;
    if replaces(keep.better, task.promoted_version, &measured) {
        let stored = tx.stored_version(task.id, version).await?;
        if stored.is_some_and(|stored| stored.removed_at.is_none()) {
            tx.promote_version(task.id, version, now).await?;
            improvement.promoted = Some(version);
        }
    }
    if let Some(stop_after) = task.spec.rounds.stop_after.filter(|&stop_after| now_best.rounds_since >= stop_after) {
        let metric = &keep.metric;
        improvement.end =
            Some(format!("stop_after = {stop_after} is reached: version {version} has the best {metric}"));
    }
    Ok(improvement)
}
