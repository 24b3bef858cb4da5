//! Training ahead of rounds, read from rows: the participants in training, and the updates ready for aggregation.
//!
//! Requests and background work both use this, with the rules of `federation::training`.

use std::collections::BTreeMap;

use federation::id::{ParticipantId, TaskId};
use federation::round::{Round, RoundState};
use federation::time::Timestamp;
use federation::training::{Training, TrainingStatus, standing};
use store::entity::task::TaskRow;
use store::entity::training::Buffered;
use store::{StoreError, Transaction};
use task_spec::Ahead;

/// Participants whose update the newest version made too old; they must be notified.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn outdated(
    tx: &mut Transaction<'_>,
    task: TaskId,
    now: Timestamp,
) -> Result<Vec<ParticipantId>, StoreError> {
    let Some(task) = tx.task(task).await? else { return Ok(Vec::new()) };
    let Some(ahead) = task.spec.ahead() else { return Ok(Vec::new()) };
    Ok(TrainingStates::read(tx, &task, &ahead, now).await?.stale())
}

/// Computes [`TrainingStates::ready_count`] by a count in the database.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn count_ready(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    ahead: &Ahead,
    now: Timestamp,
) -> Result<u32, StoreError> {
    tx.count_ready_trainings(task.id, task.model_version.saturating_sub(ahead.staleness.max), now).await
}

/// States of all participants with a training that is not over.
pub(crate) struct TrainingStates(BTreeMap<ParticipantId, (Training, TrainingStatus)>);

impl TrainingStates {
    /// Reads the states of a task.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn read(
        tx: &mut Transaction<'_>,
        task: &TaskRow,
        ahead: &Ahead,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let open = tx.open_trainings(task.id, now).await?.into_iter();
        let judge =
            |training: &Training, claim| standing(Some(training), claim, task.model_version, ahead.staleness, now);
        Ok(Self(open.map(|(training, claim)| (training.participant, (training, judge(&training, claim)))).collect()))
    }

    /// Whether the participant may start a training.
    pub(crate) fn is_free(&self, participant: ParticipantId) -> bool {
        self.0.get(&participant).is_none_or(|(_, standing)| *standing == TrainingStatus::Free)
    }

    /// The participant's update, if it may be aggregated.
    pub(crate) fn ready(&self, participant: ParticipantId) -> Option<Buffered> {
        let (training, standing) = self.0.get(&participant)?;
        let Training { serial, base_version, .. } = *training;
        matches!(standing, TrainingStatus::Ready { .. }).then_some(Buffered { participant, serial, base_version })
    }

    /// Whether its training has expired: it took too long, or the update was drawn into a round.
    pub(crate) fn was_drawn(&self, participant: ParticipantId, now: Timestamp) -> bool {
        self.0.get(&participant).is_some_and(|(training, _)| training.expires_at <= now)
    }

    /// All participants with a finished update, of any age.
    pub(crate) fn holders(&self) -> Vec<ParticipantId> {
        let holds =
            |standing: &TrainingStatus| matches!(standing, TrainingStatus::Ready { .. } | TrainingStatus::Stale { .. });
        self.0.values().filter(|(_, standing)| holds(standing)).map(|(training, _)| training.participant).collect()
    }

    /// All participants with an outdated update.
    pub(crate) fn stale(&self) -> Vec<ParticipantId> {
        let stale = self.0.values().filter(|(_, standing)| matches!(standing, TrainingStatus::Stale { .. }));
        stale.map(|(training, _)| training.participant).collect()
    }

    /// Number of updates that may be aggregated.
    pub(crate) fn ready_count(&self) -> u32 {
        count(self.0.values().filter(|(_, standing)| matches!(standing, TrainingStatus::Ready { .. })))
    }

    /// Number of participants in training or with a usable update. It limits new trainings: with more of them than rounds can take, every
    /// update would reach the maximum staleness. Excludes an expired training once a later round opened (`last_opened`): perhaps no round
    /// may take its update, and its slot would never become free.
    pub(crate) fn busy_count(&self, last_opened: Timestamp) -> u32 {
        let is_busy = |(training, standing): &&(Training, TrainingStatus)| match standing {
            TrainingStatus::Training => true,
            TrainingStatus::Ready { .. } => last_opened < training.expires_at,
            TrainingStatus::Free | TrainingStatus::Resting | TrainingStatus::Stale { .. } | TrainingStatus::Unknown => {
                false
            }
        };
        count(self.0.values().filter(is_busy))
    }

    /// Time of the next expiry of a training, or of the rest after a participant gave up.
    pub(crate) fn first_lapse(&self) -> Option<Timestamp> {
        let lapses = |standing| matches!(standing, TrainingStatus::Training | TrainingStatus::Resting);
        let training = self.0.values().filter(|(_, standing)| lapses(*standing));
        training.map(|(training, _)| training.expires_at).min()
    }
}

/// When the last round of the task opened, or the task was created.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn last_opened(tx: &mut Transaction<'_>, task: &TaskRow) -> Result<Timestamp, StoreError> {
    let last = tx.rounds(task.id, None, 1).await?;
    Ok(last.first().map_or(task.created_at, |row| row.round.opened_at))
}

/// The number of the round expected to take an update whose training begins now; `None` if the task has no such round left. `latest` is the
/// latest attempt at the task's next round; after the draw of its cohort it takes no more updates.
pub(crate) fn filled_next(task: &TaskRow, latest: Option<&Round>) -> Option<u32> {
    let is_drawn = latest.is_some_and(|round| !round.state.is_terminal() && round.state != RoundState::Selecting);
    let drawn = u32::from(is_drawn);
    let is_left = task.rounds_completed.saturating_add(drawn) < task.spec.rounds.count;
    is_left.then(|| task.next_round().number.saturating_add(drawn))
}

fn count(these: impl Iterator) -> u32 {
    u32::try_from(these.count()).unwrap_or(u32::MAX)
}
