//! Draws the cohort of a round that has enough eligible participants.

use federation::cohort::{Candidate, Selector, Uniform};
use federation::id::ParticipantId;
use federation::round::{Assignment, AssignmentState, Round, RoundState};
use federation::task::{Strategy, TaskSpec};
use federation::time::Timestamp;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use store::Transaction;
use store::entity::task::TaskRow;

use super::StepError;
use super::situation::eligible;

/// Stores cohort, assignments and the state COLLECTING, as a part of the caller's transaction. `fresh_seed` is used if the
/// task has no seed of its own. Returns the round as it is then and who was drawn, in the order of ids; nothing if somebody
/// else changed the round.
pub(super) async fn draw_cohort(
    tx: &mut dyn Transaction,
    task: &TaskRow,
    round: &Round,
    fresh_seed: [u8; 32],
    now: Timestamp,
) -> Result<Option<(Round, Vec<ParticipantId>)>, StepError> {
    let candidates = eligible(tx, task, round, now).await?;
    let draw = task.spec.draw(u32::try_from(candidates.len()).unwrap_or(u32::MAX));
    let mut cohort = select(&task.spec, round, &candidates, draw.cohort, fresh_seed);
    cohort.sort_unstable();

    let mut after = round.clone();
    after.state = RoundState::Collecting;
    after.state_since = now;
    after.cohort = u32::try_from(cohort.len()).unwrap_or(u32::MAX);
    after.limits.collect.max = draw.collect_max;
    if !tx.transition_round(round, &after).await? {
        return Ok(None);
    }
    let assignments: Vec<_> = cohort.iter().map(|&participant| assignment(&after, participant, now)).collect();
    tx.insert_assignments(&assignments).await?;
    tx.remove_check_ins(&cohort).await?;
    Ok(Some((after, cohort)))
}

fn assignment(round: &Round, participant: ParticipantId, now: Timestamp) -> Assignment {
    Assignment {
        round: round.key,
        attempt: round.attempt,
        participant,
        state: AssignmentState::Assigned,
        state_since: now,
        detail: None,
        assigned_at: now,
    }
}

fn select(
    spec: &TaskSpec,
    round: &Round,
    candidates: &[Candidate],
    count: u32,
    fresh_seed: [u8; 32],
) -> Vec<ParticipantId> {
    let selector: &dyn Selector = match spec.selection.strategy {
        Strategy::Uniform => &Uniform,
    };
    let seed = spec.selection.seed.map_or(fresh_seed, |seed| draw_seed(seed, round.key.number, round.attempt));
    selector.select(candidates, count as usize, &mut ChaCha20Rng::from_seed(seed))
}

/// Another draw for each round and attempt, the same in every process.
fn draw_seed(seed: u64, round: u32, attempt: u32) -> [u8; 32] {
    let mut key = *b"----------------tributary cohort";
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..12].copy_from_slice(&round.to_le_bytes());
    key[12..16].copy_from_slice(&attempt.to_le_bytes());
    key
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_round_and_attempt_has_a_draw_of_its_own() {
        let seeds: HashSet<_> = (0..4)
            .flat_map(|seed| (0..4).flat_map(move |round| (0..4).map(move |attempt| draw_seed(seed, round, attempt))))
            .collect();
        assert_eq!(seeds.len(), 64);
    }
}
