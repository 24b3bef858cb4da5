//! Training ahead of rounds, read from rows: who trains, and whose finished updates may be aggregated.
//!
//! Requests and background work both use this, with the rules of `federation::training`.

use std::collections::BTreeMap;

use federation::id::{ParticipantId, TaskId};
use federation::round::{Round, RoundState};
use federation::time::Timestamp;
use federation::training::{Standing, Training, standing};
use store::entity::task::TaskRow;
use store::entity::training::Buffered;
use store::{StoreError, Transaction};
use task_spec::Ahead;

/// Those whose update became too old with the task's newest version: they are to be told.
///
/// # Errors
/// The store's.
pub(crate) async fn outdated(
    tx: &mut Transaction<'_>,
    task: TaskId,
    now: Timestamp,
) -> Result<Vec<ParticipantId>, StoreError> {
    let Some(task) = tx.task(task).await? else { return Ok(Vec::new()) };
    let Some(ahead) = task.spec.ahead() else { return Ok(Vec::new()) };
    Ok(TrainingStates::read(tx, &task, &ahead, now).await?.stale())
}

/// As [`TrainingStates::ready_count`], without a look at each training.
///
/// # Errors
/// The store's.
pub(crate) async fn count_ready(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    ahead: &Ahead,
    now: Timestamp,
) -> Result<u32, StoreError> {
    tx.count_ready_trainings(task.id, task.model_version.saturating_sub(ahead.staleness.max), now).await
}

/// State of all participants with a training that is not over.
pub(crate) struct TrainingStates(BTreeMap<ParticipantId, (Training, Standing)>);

impl TrainingStates {
    /// Reads the states of a task.
    ///
    /// # Errors
    /// The store's.
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

    /// Whether the participant may be asked to train.
    pub(crate) fn is_free(&self, participant: ParticipantId) -> bool {
        self.0.get(&participant).is_none_or(|(_, standing)| *standing == Standing::Free)
    }

    /// The update that the participant holds, if it may be aggregated.
    pub(crate) fn ready(&self, participant: ParticipantId) -> Option<Buffered> {
        let (training, standing) = self.0.get(&participant)?;
        let Training { serial, base_version, .. } = *training;
        matches!(standing, Standing::Ready { .. }).then_some(Buffered { participant, serial, base_version })
    }

    /// Whether its training has expired: it took too long, or the update was drawn into a round.
    pub(crate) fn was_drawn(&self, participant: ParticipantId, now: Timestamp) -> bool {
        self.0.get(&participant).is_some_and(|(training, _)| training.expires_at <= now)
    }

    /// All participants with a finished update, of any age.
    pub(crate) fn holders(&self) -> Vec<ParticipantId> {
        let holds = |standing: &Standing| matches!(standing, Standing::Ready { .. } | Standing::Stale { .. });
        self.0.values().filter(|(_, standing)| holds(standing)).map(|(training, _)| training.participant).collect()
    }

    /// All participants with an update that is too old.
    pub(crate) fn stale(&self) -> Vec<ParticipantId> {
        let stale = self.0.values().filter(|(_, standing)| matches!(standing, Standing::Stale { .. }));
        stale.map(|(training, _)| training.participant).collect()
    }

    /// Number of updates that may be aggregated.
    pub(crate) fn ready_count(&self) -> u32 {
        count(self.0.values().filter(|(_, standing)| matches!(standing, Standing::Ready { .. })))
    }

    /// Number of participants that train or hold an update to be aggregated: if more trained than rounds can take,
    /// every update would reach the maximum staleness. A training is not counted if a round has opened (`last_opened`)
    /// after its time was over: perhaps no round may take the update, and its slot would never be free.
    pub(crate) fn busy_count(&self, last_opened: Timestamp) -> u32 {
        let is_busy = |(training, standing): &&(Training, Standing)| match standing {
            Standing::Training => true,
            Standing::Ready { .. } => last_opened < training.expires_at,
            Standing::Free | Standing::Resting | Standing::Stale { .. } | Standing::Unknown => false,
        };
        count(self.0.values().filter(is_busy))
    }

    /// Time at which the first training expires, or a participant that gave up may be asked to train again.
    pub(crate) fn first_lapse(&self) -> Option<Timestamp> {
        let lapses = |standing| matches!(standing, Standing::Training | Standing::Resting);
        let training = self.0.values().filter(|(_, standing)| lapses(*standing));
        training.map(|(training, _)| training.expires_at).min()
    }
}

/// When the last round of the task opened, or the task was created.
///
/// # Errors
/// The store's.
pub(crate) async fn last_opened(tx: &mut Transaction<'_>, task: &TaskRow) -> Result<Timestamp, StoreError> {
    let last = tx.rounds(task.id, None, 1).await?;
    Ok(last.first().map_or(task.created_at, |row| row.round.opened_at))
}

/// The number of the round that may take an update whose training begins now; none if the task has no such round left. `latest`
/// is the latest attempt at the task's next round: once it has drawn its cohort it takes no more.
pub(crate) fn filled_next(task: &TaskRow, latest: Option<&Round>) -> Option<u32> {
    let is_drawn = latest.is_some_and(|round| !round.state.is_terminal() && round.state != RoundState::Selecting);
    let drawn = u32::from(is_drawn);
    let is_left = task.rounds_completed.saturating_add(drawn) < task.spec.rounds.count;
    is_left.then(|| task.next_round().number.saturating_add(drawn))
}

fn count(these: impl Iterator) -> u32 {
    u32::try_from(these.count()).unwrap_or(u32::MAX)
}
