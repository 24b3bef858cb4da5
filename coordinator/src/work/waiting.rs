//! Participants that may be asked to train ahead of rounds.

use federation::cohort::Candidate;
use federation::time::Timestamp;
use store::Transaction;
use store::entity::task::TaskRow;
use task_spec::Ahead;

use super::StepError;
use crate::ahead::TrainingStates;

/// Number of additional trainings allowed.
pub(super) fn free_places(standings: &TrainingStates, ahead: &Ahead, last_opened: Timestamp) -> u32 {
    ahead.concurrency.saturating_sub(standings.busy_count(last_opened))
}

/// Who is there, meets the requirements for the round of this number and has nothing to do, in the order of names.
pub(super) async fn waiting(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    standings: &TrainingStates,
    number: u32,
    now: Timestamp,
) -> Result<Vec<Candidate>, StepError> {
    let mut candidates = tx.candidates(task.id, now).await?;
    candidates.retain(|candidate| {
        standings.is_free(candidate.participant) && candidate.check(&task.spec.selection.require, number, now).is_ok()
    });
    Ok(candidates)
}
