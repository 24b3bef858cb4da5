//! Training ahead of rounds: pending updates, and the participants to train.

use std::ops::ControlFlow::{Break, Continue};

use federation::id::{ParticipantId, TaskId};
use federation::time::Timestamp;
use federation::training::{Claim, TrainingStatus, standing};
use store::entity::open_task::OpenTask;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use task_spec::Ahead;
use wire::participant::{CheckInRequest, DiscardReason};

use super::found::{CheckInAnswer, Step, TrainingOffer};
use crate::http::reply::problem::Result;
use crate::records::provenance;
use crate::rounds::ahead::filled_next;
use crate::rounds::base;

/// The tasks with work for the participant, each with whether it may join the next round. If participants train ahead, only holders of a
/// recent enough update join.
pub(super) async fn trained_ahead(
    tx: &mut Transaction<'_>,
    tasks: Vec<OpenTask>,
    participant: ParticipantId,
    request: &CheckInRequest,
    now: Timestamp,
) -> Result<Step<Vec<(OpenTask, bool)>>> {
    let held = match update_held(tx, participant, request, now).await? {
        Break(answer) => return Ok(Break(answer)),
        Continue(held) => held.filter(|held| tasks.iter().any(|open| open.task.id == held.task)),
    };
    let mut open = Vec::with_capacity(tasks.len());
    let mut is_before = true;
    for waiting in tasks {
        let task = &waiting.task;
        let is_held = held.as_ref().is_some_and(|held| held.task == task.id);
        is_before &= !is_held;
        let may_join = match task.spec.ahead() {
            None => true,
            Some(_) if is_held => true,
            // A participant holds one update at a time: training for this task would replace it.
            Some(_) if held.as_ref().is_some_and(|held| !(held.is_overdue && is_before)) => continue,
            Some(ahead) => match to_train(tx, task, &ahead, participant, request, now).await? {
                Some(train) => return Ok(Break(CheckInAnswer::Train(Box::new(train)))),
                None => false,
            },
        };
        open.push((waiting, may_join));
    }
    Ok(Continue(open))
}

/// A finished update, usable in rounds.
struct UsableUpdate {
    task: TaskId,
    /// No round took the update within its training time. Then older tasks may use the participant, but no others, so that one of several
    /// incomplete buffers fills up.
    is_overdue: bool,
}

/// The finished update reported by the participant, if any. Breaks if it must be discarded.
async fn update_held(
    tx: &mut Transaction<'_>,
    participant: ParticipantId,
    request: &CheckInRequest,
    now: Timestamp,
) -> Result<Step<Option<UsableUpdate>>> {
    let Some(report) = request.training.filter(|report| report.ready) else { return Ok(Continue(None)) };
    let task = tx.task(report.task).await?.filter(|task| !task.status.is_terminal());
    let unusable = |reason| Ok(Break(CheckInAnswer::Discard(report.task, report.serial, reason)));
    let Some((task, ahead)) = task.and_then(|task| task.spec.ahead().map(|ahead| (task, ahead))) else {
        return unusable(DiscardReason::Unknown);
    };
    let training = tx.training(task.id, participant).await?;
    match standing(training.as_ref(), claim(request, task.id), task.model_version, ahead.staleness, now) {
        TrainingStatus::Ready { .. } => {
            let end = training.map(|training| training.granted_at.plus(ahead.training_deadline));
            Ok(Continue(Some(UsableUpdate { task: task.id, is_overdue: end.is_some_and(|end| end <= now) })))
        }
        TrainingStatus::Stale { .. } => unusable(DiscardReason::TooStale),
        TrainingStatus::Unknown | TrainingStatus::Training | TrainingStatus::Resting | TrainingStatus::Free => {
            unusable(DiscardReason::Unknown)
        }
    }
}

/// The unfinished training of the participant in this task.
async fn to_train(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    ahead: &Ahead,
    participant: ParticipantId,
    request: &CheckInRequest,
    now: Timestamp,
) -> Result<Option<TrainingOffer>> {
    let training = tx.training(task.id, participant).await?;
    let stands = standing(training.as_ref(), claim(request, task.id), task.model_version, ahead.staleness, now);
    let Some(training) = training.filter(|_| stands == TrainingStatus::Training) else { return Ok(None) };
    let latest = tx.round(task.next_round()).await?;
    // There may be no further round: the update waits in case the last one fails.
    let Some(number) = filled_next(task, latest.as_ref().map(|row| &row.round)) else { return Ok(None) };
    let base = base::read(tx, task, training.base_version).await?;
    let base = base.ok_or_else(|| StoreError::corrupt(format!("a training of task {} has no base", task.id)))?;
    let provenance = provenance::of(tx, task.id, training.base_version).await?;
    Ok(Some(TrainingOffer { training, task: task.clone(), number, base, provenance }))
}

/// The participant's report on its training for this task.
pub(super) fn claim(request: &CheckInRequest, task: TaskId) -> Option<Claim> {
    let report = request.training.filter(|report| report.task == task)?;
    Some(Claim { serial: report.serial, is_ready: report.ready })
}
