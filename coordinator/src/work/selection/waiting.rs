//! Candidates for an asynchronous training.

use federation::cohort::Candidate;
use federation::time::Timestamp;
use store::Transaction;
use store::entity::task::TaskRow;
use task_spec::Ahead;

use crate::rounds::ahead::TrainingStates;
use crate::work::StepError;

/// Number of additional trainings allowed.
pub(in crate::work) fn free_places(standings: &TrainingStates, ahead: &Ahead, last_opened: Timestamp) -> u32 {
    ahead.concurrency.saturating_sub(standings.busy_count(last_opened))
}

/// The present, idle participants that meet the requirements for this round, in the order of names.
pub(in crate::work) async fn waiting(
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
