//! Whether a sampling task still has participants whose own privacy ledgers allow participation.
//!
//! If the privacy figures rest on the draw, a sum is released even with few drawn participants. Once most participants refuse, because
//! their app's limit is reached, releases would be noise alone, and would be charged. The task then pauses. The time of the pause depends
//! on earlier draws: see docs/PRIVACY.md.

use federation::id::{Attempt, ParticipantId};
use federation::round::{AssignmentState, Round, RoundLimits};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use recipe::server::PrivateTask;
use store::Transaction;
use store::entity::task::TaskRow;
use wire::grammar::counted;
use wire::participant::RefusalCode;

use super::sample::population;
use crate::rounds::waiting::abandon_detail::prefix;
use crate::work::StepError;

/// Number of latest rounds searched for refusals.
const LOOK_BACK: u32 = 64;
/// Maximum cohort read at once.
const COHORT_MAX: u32 = 1 << 20;

/// The reason to stop opening rounds, if too many participants refuse to draw from the rest.
pub(in crate::work) async fn too_few_left(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    private: &PrivateTask,
) -> Result<Option<String>, StepError> {
    if !task.spec.sampling_amplifies() {
        return Ok(None);
    }
    let mut refusing = refusing(tx, task).await?;
    if refusing.is_empty() {
        return Ok(None);
    }
    refusing.sort_unstable();
    let population = population(tx, task).await?;
    let needed = private.limits(RoundLimits::of(&task.spec)).select.min as usize;
    let left = population.iter().filter(|member| refusing.binary_search(member).is_err()).count();
    Ok((population.len() >= needed && left < needed).then(|| {
        let of = population.len();
        words(&format!("{} of {of} participants", of - left), &format!("a round is drawn from {needed} at least"))
    }))
}

/// The reason to withhold the sum of a round without reports, if at least half of its cohort refused.
pub(in crate::work) async fn nobody_left(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
) -> Result<Option<String>, StepError> {
    if !task.spec.sampling_amplifies() || round.cohort == 0 {
        return Ok(None);
    }
    let cohort = tx.assignments(round.key, None, COHORT_MAX).await?;
    if cohort.iter().any(|place| place.state == AssignmentState::Reported) {
        return Ok(None);
    }
    let prefix = prefix(RefusalCode::Privacy);
    let is_refusal = |detail: Option<&str>| detail.is_some_and(|detail| detail.starts_with(&prefix));
    let abandoned = cohort.iter().filter(|place| place.state == AssignmentState::Abandoned);
    let refused = abandoned.filter(|place| is_refusal(place.detail.as_deref())).count();
    Ok((2 * refused >= cohort.len()).then(|| {
        let drawn = format!("{refused} of the {} drawn", counted(round.cohort, "participant", "participants"));
        words(&drawn, "nobody reported")
    }))
}

/// Pauses the task for this reason. Returns false if it was not active.
pub(in crate::work) async fn pause(
    tx: &mut Transaction<'_>,
    of: Attempt,
    why: &str,
    now: Timestamp,
) -> Result<bool, StepError> {
    Ok(tx.set_task_status(of.task, &[TaskStatus::Active], TaskStatus::Paused, now, Some(why)).await?)
}

/// Participants whose last answer in this task was a refusal because of their own privacy limits. Only answers since the last resumption by
/// an operator are included.
async fn refusing(tx: &mut Transaction<'_>, task: &TaskRow) -> Result<Vec<ParticipantId>, StepError> {
    let history = tx.task_history(task.id).await?;
    let resumed =
        history.iter().rev().find(|change| change.status == TaskStatus::Active).map_or(task.created_at, |it| it.at);
    let from = task.next_round().number.saturating_sub(LOOK_BACK);
    Ok(tx.refusing(task.id, from, resumed, &format!("{}%", prefix(RefusalCode::Privacy))).await?)
}

fn words(who: &str, rest: &str) -> String {
    format!(
        "{who} refused because of their own limits of privacy, and {rest}: a release would be noise alone. Raise the limits \
         of the apps (PrivacyPolicy::lifetime, max_epsilon) and resume the task, or create one with more noise or fewer rounds"
    )
}
