//! The facts that determine a task's next step, read in one transaction.

use bytes::Bytes;
use federation::advance::Tally;
use federation::batches::{BatchTally, adjusted};
use federation::cohort::Candidate;
use federation::groups::GroupTally;
use federation::id::TaskId;
use federation::round::{Round, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use store::Transaction;
use store::entity::round::RoundRow;
use store::entity::session_message::MessageKind;
use store::entity::task::TaskRow;
use task_spec::Mode;

use crate::rounds::ahead::{TrainingStates, filled_next, last_opened};
pub(in crate::work) use crate::rounds::selection::eligible::eligible;
use crate::rounds::selection::eligible::{admission, count_drawable, count_eligible, takes_anybody};
use crate::rounds::waiting::retries::{Failures, failures};
pub(in crate::work) use crate::rounds::waiting::shortage::{Enrolment, enrolment};
use crate::work::StepError;
use crate::work::selection::batches;
use crate::work::selection::waiting::{free_places, waiting};

/// A task, its current round and that round's progress.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::work) struct Situation {
    pub(in crate::work) task: TaskRow,
    /// The latest attempt at the next round, ended or not; `None` before the first.
    pub(in crate::work) latest: Option<RoundRow>,
    /// Failures since the last completed round.
    pub(in crate::work) failures: Option<Failures>,
    /// Tally of that attempt, if it is open.
    pub(in crate::work) tally: Tally,
    /// Tallies of its groups, if its cohort is divided.
    pub(in crate::work) groups: Vec<GroupTally>,
    /// Inputs not yet in a partial sum.
    pub(in crate::work) unfolded: u32,
    /// Whether some of the cohort's fixed batches may still be excluded.
    pub(super) may_leave_out: bool,
    /// Whether the sum was released.
    pub(in crate::work) released: bool,
    /// Whether a participant complained about a dealer; for groups, see `groups`.
    pub(in crate::work) complained: bool,
    /// State of training ahead, if the task has it.
    pub(in crate::work) ahead: Option<AheadStatus>,
    /// The needed and possible participants of the next attempt, if the last one lacked participants.
    pub(super) enrolment: Option<Enrolment>,
}

/// State of training ahead of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::work) struct AheadStatus {
    /// Updates ready for aggregation.
    pub(in crate::work) ready: u32,
    /// Number of waiting participants available for a training now.
    pub(super) grantable: u32,
    /// Time at which the next training expires.
    pub(super) lapse: Option<Timestamp>,
    /// When the last round opened, or the task was created.
    pub(in crate::work) last_opened: Timestamp,
}

impl Situation {
    /// Reads the situation; `None` for an unknown task.
    pub(in crate::work) async fn read(
        tx: &mut Transaction<'_>,
        task: TaskId,
        now: Timestamp,
    ) -> Result<Option<Self>, StepError> {
        let Some(task) = tx.task(task).await? else { return Ok(None) };
        let latest = tx.round(task.next_round()).await?;
        let failures = failures(tx, &task, latest.as_ref()).await?;
        let (unfolded, may_leave_out, released, complained) = (0, false, false, false);
        let ahead = ahead_now(tx, &task, latest.as_ref(), now).await?;
        let (tally, groups) = (Tally::default(), Vec::new());
        let ended = latest.as_ref().map(|row| &row.round).filter(|round| round.state.is_terminal());
        let enrolment = enrolment(tx, &task, ended).await?;
        let mut situation = Self {
            task,
            latest,
            failures,
            tally,
            groups,
            unfolded,
            may_leave_out,
            released,
            complained,
            ahead,
            enrolment,
        };
        let Some(round) = situation.open_round().cloned() else { return Ok(Some(situation)) };
        let attempt = round.key;
        situation.tally = self::tally(tx, &situation.task, &round, now).await?;
        situation.groups = groups_of(tx, &round).await?;
        situation.may_leave_out = !batches_of(tx, &round).await?.is_empty();
        if round.state != RoundState::Selecting {
            situation.unfolded = tx.unfolded_count(attempt).await?;
            situation.released = tx.noised_sum(attempt).await?.is_some();
        }
        if round.state == RoundState::Collecting && round.limits.secure.is_some() && round.limits.groups.is_none() {
            let complaints = tx.message_senders(attempt, MessageKind::Complaint).await?;
            situation.complained = !complaints.is_empty();
        }
        Ok(Some(situation))
    }

    pub(in crate::work) fn open_round(&self) -> Option<&Round> {
        self.latest.as_ref().map(|row| &row.round).filter(|round| !round.state.is_terminal())
    }
}

async fn ahead_now(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    latest: Option<&RoundRow>,
    now: Timestamp,
) -> Result<Option<AheadStatus>, StepError> {
    let Some(ahead) = task.spec.ahead() else { return Ok(None) };
    let standings = TrainingStates::read(tx, task, &ahead, now).await?;
    let last_opened = last_opened(tx, task).await?;
    let places = free_places(&standings, &ahead, last_opened);
    let grantable = match filled_next(task, latest.map(|row| &row.round)) {
        Some(number) if task.status == TaskStatus::Active && places > 0 => {
            let waiting = waiting(tx, task, &standings, number, now).await?;
            u32::try_from(waiting.len()).unwrap_or(u32::MAX).min(places)
        }
        // Trainings only start for rounds that will take place.
        _ => 0,
    };
    Ok(Some(AheadStatus { ready: standings.ready_count(), grantable, lapse: standings.first_lapse(), last_opened }))
}

/// The facts that determine the progress of `round`.
pub(in crate::work) async fn tally(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
    now: Timestamp,
) -> Result<Tally, StepError> {
    if round.state == RoundState::Selecting {
        let count = |candidates: usize| u32::try_from(candidates).unwrap_or(u32::MAX);
        let attempt = round.key;
        let Some(_) = round.limits.secure else {
            let eligible = count_eligible(tx, task, round, now).await?;
            return Ok(Tally { eligible, ..Tally::default() });
        };
        let keyed = match takes_anybody(task, round) && !needs_batches(tx, task).await? {
            true => tx.keyed_candidate_count(attempt, now).await?,
            false => count(keyed(tx, task, round, now).await?.len()),
        };
        // A periodic draw takes all ready participants, not only the fastest.
        let pending = match task.spec.schedule.mode {
            Mode::SemiSync => count_drawable(tx, task, round, now).await?.saturating_sub(keyed),
            Mode::Sync | Mode::Buffered => 0,
        };
        return Ok(Tally { eligible: keyed, pending, ..Tally::default() });
    }
    let batches = batches_of(tx, round).await?;
    Ok(adjusted(tx.tally(round.key).await?, round.state, &batches))
}

/// The progress of the cohort's fixed batches, while a torn batch can still be excluded.
async fn batches_of(tx: &mut Transaction<'_>, round: &Round) -> Result<Vec<BatchTally>, StepError> {
    let matters = matches!(round.state, RoundState::Sharing | RoundState::Collecting) && round.limits.secure.is_some();
    Ok(if matters { tx.batch_tallies(round.key).await? } else { Vec::new() })
}

/// Whether participants may have batches, drawn only as a whole.
async fn needs_batches(tx: &mut Transaction<'_>, task: &TaskRow) -> Result<bool, StepError> {
    let is_secure = task.spec.secure_aggregation.enabled;
    Ok(is_secure && (task.spec.batch_size().is_some() || tx.has_batches().await?))
}

/// The facts about each group of a divided cohort.
pub(in crate::work) async fn groups_of(tx: &mut Transaction<'_>, round: &Round) -> Result<Vec<GroupTally>, StepError> {
    let is_drawn = round.limits.groups.is_some() && round.state != RoundState::Selecting;
    if !is_drawn {
        return Ok(Vec::new());
    }
    let (mut groups, batches) = (tx.group_tallies(round.key).await?, batches_of(tx, round).await?);
    for (number, group) in (0..).zip(&mut groups) {
        let of_group = batches.iter().filter(|batch| batch.group == Some(number));
        group.tally = adjusted(group.tally, round.state, of_group);
    }
    Ok(groups)
}

/// The eligible participants with keys for this attempt under secure aggregation, with their advertisements.
pub(in crate::work) async fn keyed(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
    now: Timestamp,
) -> Result<Vec<(Candidate, Bytes)>, StepError> {
    let mut keyed = tx.keyed_candidates(round.key, now).await?;
    let may = admission(tx, task, round, now).await?;
    keyed.retain(|(candidate, _)| may(candidate));
    // The database may know fewer batches than exist, since it may be older.
    Ok(batches::whole(keyed, task.spec.batch_size().unwrap_or(0)))
}
