//! Candidates of a selecting round.

use std::collections::{BTreeMap, HashMap, HashSet};

use federation::cohort::Candidate;
use federation::id::{Digest, ParticipantId};
use federation::round::Round;
use federation::time::Timestamp;
use secure_agg::batch::batch_id;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use task_spec::Requirements;

use crate::rounds::ahead::TrainingStates;

/// The population for draws, in the order of enrolment.
pub(crate) async fn population(tx: &mut Transaction<'_>, task: &TaskRow) -> Result<Vec<ParticipantId>, StoreError> {
    let wanted = task.spec.privacy.population.unwrap_or_default();
    tx.population(&task.spec.selection.require.labels, wanted).await
}

/// The same, in the order of ids.
async fn sorted_population(tx: &mut Transaction<'_>, task: &TaskRow) -> Result<Vec<ParticipantId>, StoreError> {
    let mut population = population(tx, task).await?;
    population.sort_unstable();
    Ok(population)
}

/// Participants eligible for `round` now, in the order of names.
pub(crate) async fn eligible(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
    now: Timestamp,
) -> Result<Vec<Candidate>, StoreError> {
    let mut candidates = tx.candidates(task.id, now).await?;
    let may = admission(tx, task, round, now).await?;
    candidates.retain(may);
    Ok(candidates)
}

/// Number of [`eligible`] participants.
pub(crate) async fn count_eligible(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
    now: Timestamp,
) -> Result<u32, StoreError> {
    match takes_anybody(task, round) {
        true => tx.candidate_count(task.id, now).await,
        false => Ok(count(&eligible(tx, task, round, now).await?)),
    }
}

/// Number of present participants eligible for this round of the task, before sampling and regardless of training ahead.
pub(crate) async fn count_present(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    number: u32,
    now: Timestamp,
) -> Result<u32, StoreError> {
    let members = match task.spec.privacy.sampling {
        Some(_) => Some(sorted_population(tx, task).await?),
        None if task.spec.selection.require == Requirements::default() => {
            return tx.candidate_count(task.id, now).await;
        }
        None => None,
    };
    let mut candidates = tx.candidates(task.id, now).await?;
    candidates.retain(suits(task, members, number, now));
    Ok(count(&candidates))
}

fn count(candidates: &[Candidate]) -> u32 {
    u32::try_from(candidates.len()).unwrap_or(u32::MAX)
}

/// Number of [`eligible`] participants that their reported fixed batches allow to draw.
pub(crate) async fn count_drawable(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
    now: Timestamp,
) -> Result<u32, StoreError> {
    let batch_of: HashMap<_, _> = tx.reported_batches(task.id, now).await?.into_iter().collect();
    if task.spec.batch_size().is_none() && batch_of.is_empty() {
        return count_eligible(tx, task, round, now).await;
    }
    let present = eligible(tx, task, round, now).await?;
    let present = present.iter().map(|candidate| candidate.participant);
    let present: Vec<_> = present.map(|participant| (participant, batch_of.get(&participant).copied())).collect();
    let drawable = in_whole_batches(&present, task.spec.batch_size().unwrap_or(0));
    Ok(u32::try_from(drawable.len()).unwrap_or(u32::MAX))
}

/// The participants that their batches allow to draw: members of completely present batches of at least `min` members, and participants
/// without a batch if `min` is 0.
pub(crate) fn in_whole_batches(present: &[(ParticipantId, Option<Digest>)], min: u32) -> HashSet<ParticipantId> {
    let mut members: BTreeMap<Digest, Vec<ParticipantId>> = BTreeMap::new();
    for (participant, batch) in present {
        if let Some(batch) = batch {
            members.entry(*batch).or_default().push(*participant);
        }
    }
    members.retain(|batch, members| {
        let id = batch_id(members.iter().map(|id| &id.0.as_bytes()[..]));
        id == batch.0 && u32::try_from(members.len()).is_ok_and(|size| size >= min)
    });
    let alone = present.iter().filter(|(_, batch)| min == 0 && batch.is_none()).map(|(participant, _)| *participant);
    members.into_values().flatten().chain(alone).collect()
}

/// Whether [`admission`] admits every present participant. Then a count suffices, which is faster with many waiting devices.
pub(crate) fn takes_anybody(task: &TaskRow, round: &Round) -> bool {
    round.limits.sampled.is_none()
        && task.spec.ahead().is_none()
        && task.spec.selection.require == Requirements::default()
}

/// Predicate for participants admitted to the round. They meet the requirements. If the task samples, they were sampled or belong to the
/// population to sample from. If the task trains ahead, they hold a finished update.
pub(crate) async fn admission<'a>(
    tx: &mut Transaction<'_>,
    task: &'a TaskRow,
    round: &Round,
    now: Timestamp,
) -> Result<impl Fn(&Candidate) -> bool + use<'a>, StoreError> {
    let sampled = match round.limits.sampled {
        // Before the draw: the population to sample from.
        Some(_) if task.spec.sampling_amplifies() => Some(sorted_population(tx, task).await?),
        Some(_) => Some(tx.sampled(round.key).await?),
        None => None,
    };
    let standings = match task.spec.ahead() {
        Some(ahead) => Some(TrainingStates::read(tx, task, &ahead, now).await?),
        None => None,
    };
    let suits = suits(task, sampled, round.key.round, now);
    Ok(move |candidate: &Candidate| {
        standings.as_ref().is_none_or(|standings| standings.ready(candidate.participant).is_some()) && suits(candidate)
    })
}

/// Predicate for participants meeting the requirements of this round of the task, among `members`, sorted by id; `None` means everyone.
fn suits(
    task: &TaskRow,
    members: Option<Vec<ParticipantId>>,
    number: u32,
    now: Timestamp,
) -> impl Fn(&Candidate) -> bool + use<'_> {
    move |candidate: &Candidate| {
        members.as_ref().is_none_or(|members| members.binary_search(&candidate.participant).is_ok())
            && candidate.check(&task.spec.selection.require, number, now).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn only_members_of_whole_batches_are_drawable() {
        let who = |number: u128| ParticipantId(Uuid::from_u128(number));
        let batch = |members: &[u128]| {
            let ids: Vec<_> = members.iter().map(|number| *who(*number).0.as_bytes()).collect();
            Some(Digest(batch_id(ids.iter().map(<[u8; 16]>::as_slice))))
        };
        let (three, four) = (batch(&[1, 2, 3]), batch(&[4, 5, 6, 7]));
        let mut present: Vec<_> = (1..=3).map(|number| (who(number), three)).collect();
        present.extend((4..=7).map(|number| (who(number), four)));
        present.push((who(8), None));
        let drawable = |present: &[_], min| {
            let mut drawable: Vec<_> = in_whole_batches(present, min).into_iter().map(|id| id.0.as_u128()).collect();
            drawable.sort_unstable();
            drawable
        };
        assert_eq!(drawable(&present, 0), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(drawable(&present, 3), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(drawable(&present, 4), [4, 5, 6, 7]);
        present.remove(4);
        assert_eq!(drawable(&present, 0), [1, 2, 3, 8]);
        assert_eq!(drawable(&present, 4), [0; 0]);
        // A participant falsely reporting a batch tears that batch.
        present.push((who(9), three));
        assert_eq!(drawable(&present, 0), [8]);
    }
}
