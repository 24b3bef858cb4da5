//! Everything the choice of a task's next step depends on, read at one moment.

use federation::advance::Tally;
use federation::cohort::Candidate;
use federation::id::{RoundKey, TaskId};
use federation::round::{Round, RoundState};
use federation::time::Timestamp;
use store::Transaction;
use store::entity::round::RoundRow;
use store::entity::task::TaskRow;

use super::StepError;

/// A task, its present round and how far that has come.
#[derive(Clone, Debug)]
pub(super) struct Situation {
    pub(super) task: TaskRow,
    /// The latest attempt at the next round, ended or not; none before the first.
    pub(super) latest: Option<RoundRow>,
    /// Facts about that attempt if it is open.
    pub(super) tally: Tally,
    /// Inputs that no partial sum holds.
    pub(super) unfolded: u32,
    /// Whether the sum was released.
    pub(super) released: bool,
}

impl Situation {
    /// Reads it; nothing if there is no such task.
    pub(super) async fn read(
        tx: &mut dyn Transaction,
        task: TaskId,
        now: Timestamp,
    ) -> Result<Option<Self>, StepError> {
        let Some(task) = tx.task(task).await? else { return Ok(None) };
        let latest = tx.round(next_round(&task)).await?;
        let mut situation = Self { task, latest, tally: Tally::default(), unfolded: 0, released: false };
        let Some(round) = situation.open_round().cloned() else { return Ok(Some(situation)) };
        let (key, attempt) = (round.key, round.attempt);
        situation.tally = tally(tx, &situation.task, &round, now).await?;
        if round.state != RoundState::Selecting {
            situation.unfolded = tx.unfolded_count(key, attempt).await?;
            situation.released = tx.noised_sum(key, attempt).await?.is_some();
        }
        Ok(Some(situation))
    }

    /// The attempt that has not ended.
    pub(super) fn open_round(&self) -> Option<&Round> {
        self.latest.as_ref().map(|row| &row.round).filter(|round| !round.state.is_terminal())
    }
}

/// The round whose turn it is.
pub(super) fn next_round(task: &TaskRow) -> RoundKey {
    RoundKey { task: task.id, number: task.rounds_completed.saturating_add(1) }
}

/// The facts on which `round` advances.
pub(super) async fn tally(
    tx: &mut dyn Transaction,
    task: &TaskRow,
    round: &Round,
    now: Timestamp,
) -> Result<Tally, StepError> {
    if round.state == RoundState::Selecting {
        let eligible = u32::try_from(eligible(tx, task, round, now).await?.len()).unwrap_or(u32::MAX);
        return Ok(Tally { eligible, ..Tally::default() });
    }
    Ok(tx.tally(round.key, round.attempt).await?)
}

/// Who may be drawn into `round` now, in the order of names.
pub(super) async fn eligible(
    tx: &mut dyn Transaction,
    task: &TaskRow,
    round: &Round,
    now: Timestamp,
) -> Result<Vec<Candidate>, StepError> {
    let mut candidates = tx.candidates(task.id, now).await?;
    candidates.retain(|candidate| task.spec.selection.require.check(candidate, round.key.number, now).is_ok());
    Ok(candidates)
}
