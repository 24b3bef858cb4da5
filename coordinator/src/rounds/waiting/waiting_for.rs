//! The reason why a task waits, derived in one place for the API and its clients.

use federation::round::{Round, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use federation::training::{Opening, opening};
use store::entity::round::RoundRow;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use wire::inspect::{ShortageView, TaskWaitingFor};

use crate::rounds::ahead::{count_ready, last_opened};
use crate::rounds::waiting::retries::{Retries, failures};
use crate::rounds::waiting::shortage::missing;

/// The reason for a task with its status `since` and `latest`, the latest attempt at its next round. `shortage` is the lack of participants
/// for that round.
///
/// # Errors
/// [`StoreError`]: the store cannot be read.
pub(crate) async fn waiting_for(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    since: Timestamp,
    latest: Option<&RoundRow>,
    shortage: Option<&ShortageView>,
    retries: Retries,
    now: Timestamp,
) -> Result<TaskWaitingFor, StoreError> {
    let open = latest.and_then(|row| Some((&row.round, row.round.deadline_at()?)));
    let more = shortage.map(missing);
    Ok(match (task.status, open, more) {
        (TaskStatus::Completed | TaskStatus::Cancelled, _, _) => TaskWaitingFor::Nothing,
        (_, Some((_, until)), Some(more)) => TaskWaitingFor::Participants { more, until: Some(until) },
        // A round continues regardless of the task's status.
        (_, Some((round, until)), None) => TaskWaitingFor::Phase {
            round: round.key.round,
            attempt: round.key.attempt,
            state: round.state,
            more: answers_missing(tx, round).await?,
            until,
        },
        (status @ (TaskStatus::Paused | TaskStatus::BudgetExhausted), None, _) => {
            TaskWaitingFor::Operator { status, since }
        }
        (TaskStatus::Active, None, Some(more)) => TaskWaitingFor::Participants { more, until: None },
        (TaskStatus::Active, None, None) => next_round(tx, task, latest, retries, now).await?,
    })
}

/// The reason for an active task without an open next round and without a shortage. `latest` is the latest failed attempt at that round, if
/// any.
async fn next_round(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    latest: Option<&RoundRow>,
    retries: Retries,
    now: Timestamp,
) -> Result<TaskWaitingFor, StoreError> {
    let round = task.next_round().number;
    let pause = failures(tx, task, latest).await?.and_then(|failures| failures.pause_until(retries, now));
    let Some(ahead) = task.spec.ahead() else { return Ok(TaskWaitingFor::Round { round, at: pause }) };
    let (min, ready) = (task.spec.select_min().max(1), count_ready(tx, task, &ahead, now).await?);
    Ok(match opening(&ahead, ready, min, last_opened(tx, task).await?, now) {
        Opening::Now => TaskWaitingFor::Round { round, at: pause },
        Opening::At(at) => TaskWaitingFor::Round { round, at: Some(at).max(pause) },
        Opening::WhenReady => TaskWaitingFor::Updates { round, more: min.saturating_sub(ready) },
    })
}

/// Number of answers missing for the current phase to succeed, in phases of an undivided cohort.
async fn answers_missing(tx: &mut Transaction<'_>, round: &Round) -> Result<Option<u32>, StoreError> {
    if round.limits.groups.is_some() {
        return Ok(None);
    }
    let (needed, is_input) = match round.state {
        RoundState::Collecting => (Some(round.limits.collect.min), true),
        RoundState::Sharing | RoundState::Confirming | RoundState::Unmasking => (round.answers_needed(), false),
        RoundState::Selecting
        | RoundState::Aggregating
        | RoundState::Completed
        | RoundState::Failed
        | RoundState::Cancelled => (None, false),
    };
    let Some(needed) = needed else { return Ok(None) };
    let tally = tx.tally(round.key).await?;
    Ok(Some(needed.saturating_sub(if is_input { tally.reported } else { tally.answered })))
}
