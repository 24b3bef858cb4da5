//! The shortage of participants for a task's next round.
//!
//! A selecting round waits for them. A round that failed for lack of participants is retried when enough are enrolled,
//! or at once if the task is to pause after a number of failed attempts.

use federation::round::Round;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use task_spec::Requirements;
use task_spec::Sampling;
use wire::inspect::ShortageView;

/// The participants that a task's next round needs and has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Enrolment {
    /// Number that must be present before a cohort is drawn.
    pub(crate) needed: u32,
    /// Number enrolled that may take part.
    pub(crate) enrolled: u32,
}

/// For a task whose next round's latest attempt is `latest`; `None` if it does not wait for participants.
///
/// # Errors
/// The store's.
pub(crate) async fn enrolment(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    latest: Option<&Round>,
) -> Result<Option<Enrolment>, StoreError> {
    // With training ahead, rounds open when there are updates. A paused task opens none, and the one that is open waits for its cohort.
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
                // It draws nobody before the whole population is present.
                Sampling::FixedSize(_) if !task.spec.sampling_amplifies() && enrolled < population => population,
                Sampling::FixedSize(_) | Sampling::Poisson(_) => min,
            };
            (enrolled, needed)
        }
    };
    Ok(Some(Enrolment { needed, enrolled }))
}

/// The shortage, counting also who is checked in; `None` if there are enough.
///
/// # Errors
/// The store's.
pub(crate) async fn shortage(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    latest: Option<&Round>,
    now: Timestamp,
) -> Result<Option<ShortageView>, StoreError> {
    let (Some(round), Some(Enrolment { needed, enrolled })) = (latest, enrolment(tx, task, latest).await?) else {
        return Ok(None);
    };
    let privacy = &task.spec.privacy;
    let require = &task.spec.selection.require;
    let mut population = None;
    if privacy.sampling.is_some() {
        let mut drawn_from = tx.population(&require.labels, privacy.population.unwrap_or_default()).await?;
        drawn_from.sort_unstable();
        population = Some(drawn_from);
    }
    let waiting = if population.is_none() && *require == Requirements::default() {
        tx.candidate_count(task.id, now).await?
    } else {
        let mut candidates = tx.candidates(task.id, now).await?;
        candidates.retain(|candidate| {
            let is_of_it = |population: &Vec<_>| population.binary_search(&candidate.participant).is_ok();
            population.as_ref().is_none_or(is_of_it) && candidate.check(require, round.key.round, now).is_ok()
        });
        count(candidates.len())
    };
    Ok((enrolled.min(waiting) < needed).then_some(ShortageView { needed, enrolled, waiting }))
}

/// How many participants have to check in before a cohort is drawn.
pub(crate) fn missing(shortage: &ShortageView) -> u32 {
    shortage.needed.saturating_sub(shortage.waiting.min(shortage.enrolled))
}

fn count(participants: usize) -> u32 {
    u32::try_from(participants).unwrap_or(u32::MAX)
}
