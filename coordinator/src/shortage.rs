//! Participants that a task's next round lacks.
//!
//! A round that selects waits for them; one that waited in vain is tried again when enough are enrolled, since before that nothing
//! can come of it.

use federation::cohort::Requirements;
use federation::round::Round;
use federation::task::{Sampling, TaskStatus};
use federation::time::Timestamp;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use wire::inspect::ShortageView;

/// How many a task lacks whose next round's latest attempt is `latest`; none if enough are there, or if it does not wait for
/// participants to come.
///
/// # Errors
/// The store's.
pub(crate) async fn shortage(
    tx: &mut (dyn Transaction + '_),
    task: &TaskRow,
    latest: Option<&Round>,
    now: Timestamp,
) -> Result<Option<ShortageView>, StoreError> {
    // Where participants train ahead, rounds open when there are updates.
    let is_waiting = task.status == TaskStatus::Active && task.spec.ahead().is_none();
    let Some(round) = latest.filter(|round| is_waiting && round.lacks_participants()) else { return Ok(None) };
    let privacy = &task.spec.privacy;
    let require = &task.spec.selection.require;
    let mut population = None;
    if privacy.sampling.is_some() {
        let mut drawn_from = tx.population(&require.labels, privacy.population.unwrap_or_default()).await?;
        drawn_from.sort_unstable();
        population = Some(drawn_from);
    }
    let enrolled = match &population {
        Some(population) => count(population.len()),
        None => tx.count_enrolled(task.id, &require.labels, require.max_participations).await?,
    };
    let waiting = if population.is_none() && *require == Requirements::default() {
        tx.candidate_count(task.id, now).await?
    } else {
        let mut candidates = tx.candidates(task.id, now).await?;
        candidates.retain(|candidate| {
            let is_of_it = |population: &Vec<_>| population.binary_search(&candidate.participant).is_ok();
            population.as_ref().is_none_or(is_of_it) && require.check(candidate, round.key.number, now).is_ok()
        });
        count(candidates.len())
    };
    let needed = match privacy.sampling {
        // It draws nobody before there is everybody to draw from.
        Some(Sampling::FixedSize(_)) if !task.spec.sampling_amplifies() => {
            let population = privacy.population.unwrap_or_default();
            if enrolled < population { population } else { round.limits.select.min }
        }
        Some(Sampling::FixedSize(_) | Sampling::Poisson(_)) | None => round.limits.select.min,
    };
    Ok((enrolled.min(waiting) < needed).then_some(ShortageView { needed, enrolled, waiting }))
}

fn count(participants: usize) -> u32 {
    u32::try_from(participants).unwrap_or(u32::MAX)
}
