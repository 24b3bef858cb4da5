//! The shortage of participants for a task's next round.
//!
//! A selecting round waits for them. A round that failed for lack of participants is retried when enough are enrolled, or at once if the
//! task pauses after a maximum number of failed attempts.

use federation::round::Round;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use task_spec::Sampling;
use wire::inspect::{RefusalCount, ShortageView, TaskParticipantsView};

use crate::rounds::selection::eligible::count_present;

/// The needed and the enrolled participants of a task's next round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Enrolment {
    /// Number of present participants required for a draw.
    pub(crate) needed: u32,
    /// Number of enrolled suitable participants.
    pub(crate) enrolled: u32,
}

/// The enrolment of a task whose next round's latest attempt is `latest`; `None` if it does not wait for participants.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn enrolment(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    latest: Option<&Round>,
) -> Result<Option<Enrolment>, StoreError> {
    // With training ahead, updates open rounds. A paused task stops opening rounds, but its open round waits for its cohort.
    let goes_on = |round: &Round| task.status == TaskStatus::Active || !round.state.is_terminal();
    let is_waiting = |round: &&Round| task.spec.ahead().is_none() && goes_on(round) && round.lacks_participants();
    let Some(round) = latest.filter(is_waiting) else { return Ok(None) };
    let require = &task.spec.selection.require;
    let (population, min) = (task.spec.privacy.population.unwrap_or_default(), round.limits.select.min);
    // A sampled population has no limit on participations.
    let (enrolled, needed) = match task.spec.privacy.sampling {
        None => (tx.count_enrolled(task.id, &require.labels, require.max_participations).await?, min),
        Some(sampling) => {
            let enrolled = tx.count_enrolled(task.id, &require.labels, 0).await?.min(population);
            let needed = match sampling {
                // The draw waits until the whole population is present.
                Sampling::FixedSize(_) if !task.spec.sampling_amplifies() && enrolled < population => population,
                Sampling::FixedSize(_) | Sampling::Poisson(_) => min,
            };
            (enrolled, needed)
        }
    };
    Ok(Some(Enrolment { needed, enrolled }))
}

/// The shortage including checked-in participants; `None` if there are enough.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn shortage(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    latest: Option<&Round>,
    now: Timestamp,
) -> Result<Option<ShortageView>, StoreError> {
    let (Some(round), Some(Enrolment { needed, enrolled })) = (latest, enrolment(tx, task, latest).await?) else {
        return Ok(None);
    };
    let waiting = count_present(tx, task, round.key.round, now).await?;
    Ok((enrolled.min(waiting) < needed).then_some(ShortageView { needed, enrolled, waiting }))
}

/// The possible participants of a task; `None` after its end.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn participants(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    now: Timestamp,
) -> Result<Option<TaskParticipantsView>, StoreError> {
    if task.status.is_terminal() {
        return Ok(None);
    }
    let require = &task.spec.selection.require;
    let eligible = tx.count_enrolled(task.id, &require.labels, require.max_participations).await?;
    let waiting = count_present(tx, task, task.next_round().number, now).await?;
    let refusing = tx.refusals(task.id, now).await?.into_iter();
    let refusing = refusing.map(|(reason, participants)| RefusalCount { reason, participants }).collect();
    Ok(Some(TaskParticipantsView { eligible, waiting, refusing }))
}

/// Number of participants still to check in before a draw.
pub(crate) fn missing(shortage: &ShortageView) -> u32 {
    shortage.needed.saturating_sub(shortage.waiting.min(shortage.enrolled))
}
