//! What a task waits for, derived once: the API tells it, and whoever follows a task there reads it.

use federation::round::{Round, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use federation::training::{Opening, opening};
use store::entity::round::RoundRow;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use wire::inspect::{ShortageView, TaskWaitingFor};

use crate::ahead::{count_ready, last_opened};
use crate::retries::{Retries, failures};
use crate::shortage::missing;

/// For a task whose next round's latest attempt is `latest` and which has had its status `since`; `shortage`: of participants for that
/// round.
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
        // A round goes on whatever the task's status has become.
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

/// For an active task whose next round is not open and lacks no participants; `latest`: the latest attempt at that round, if any failed.
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

/// Answers that the present phase of a round lacks to succeed, where it waits for answers of a cohort as a whole.
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
