//! Everything that a task's next step depends on, read in one transaction.

use bytes::Bytes;
use federation::advance::Tally;
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
use task_spec::Requirements;

use super::StepError;
use super::sample::population;
use super::waiting::{free_places, waiting};
use crate::ahead::{TrainingStates, filled_next, last_opened};
use crate::retries::{Failures, failures};
pub(super) use crate::shortage::{Enrolment, enrolment};

/// A task, its current round and that round's progress.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Situation {
    pub(super) task: TaskRow,
    /// The latest attempt at the next round, ended or not; none before the first.
    pub(super) latest: Option<RoundRow>,
    /// Failures since the last completed round.
    pub(super) failures: Option<Failures>,
    /// Tally of that attempt, if it is open.
    pub(super) tally: Tally,
    /// Tallies of its groups, if its cohort is divided.
    pub(super) groups: Vec<GroupTally>,
    /// Inputs that no partial sum holds.
    pub(super) unfolded: u32,
    /// Whether the sum was released.
    pub(super) released: bool,
    /// Whether a participant complained about what another dealt; of groups, see `groups`.
    pub(super) complained: bool,
    /// State of training ahead, if the task has it.
    pub(super) ahead: Option<AheadStatus>,
    /// Participants that the next attempt needs and could have, if the last one waited for them in vain.
    pub(super) enrolment: Option<Enrolment>,
}

/// State of training ahead of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AheadStatus {
    /// Updates that may be aggregated.
    pub(super) ready: u32,
    /// Number of waiting participants that may be asked to train now.
    pub(super) grantable: u32,
    /// Time at which the next training expires.
    pub(super) lapse: Option<Timestamp>,
    /// When the last round opened, or the task was created.
    pub(super) last_opened: Timestamp,
}

impl Situation {
    /// Reads the situation; `None` if there is no such task.
    pub(super) async fn read(
        tx: &mut Transaction<'_>,
        task: TaskId,
        now: Timestamp,
    ) -> Result<Option<Self>, StepError> {
        let Some(task) = tx.task(task).await? else { return Ok(None) };
        let latest = tx.round(task.next_round()).await?;
        let failures = failures(tx, &task, latest.as_ref()).await?;
        let (unfolded, released, complained) = (0, false, false);
        let ahead = ahead_now(tx, &task, latest.as_ref(), now).await?;
        let (tally, groups) = (Tally::default(), Vec::new());
        let ended = latest.as_ref().map(|row| &row.round).filter(|round| round.state.is_terminal());
        let enrolment = enrolment(tx, &task, ended).await?;
        let mut situation =
            Self { task, latest, failures, tally, groups, unfolded, released, complained, ahead, enrolment };
        let Some(round) = situation.open_round().cloned() else { return Ok(Some(situation)) };
        let attempt = round.key;
        situation.tally = self::tally(tx, &situation.task, &round, now).await?;
        situation.groups = groups_of(tx, &round).await?;
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

    /// The attempt that has not ended.
    pub(super) fn open_round(&self) -> Option<&Round> {
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
        // Nobody trains for rounds that will not take place.
        _ => 0,
    };
    Ok(Some(AheadStatus { ready: standings.ready_count(), grantable, lapse: standings.first_lapse(), last_opened }))
}

/// The facts on which `round` advances.
pub(super) async fn tally(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
    now: Timestamp,
) -> Result<Tally, StepError> {
    if round.state == RoundState::Selecting {
        let count = |candidates: usize| u32::try_from(candidates).unwrap_or(u32::MAX);
        let anybody = takes_anybody(task, round);
        let attempt = round.key;
        let Some(_) = round.limits.secure else {
            let eligible = match anybody {
                true => tx.candidate_count(task.id, now).await?,
                false => count(eligible(tx, task, round, now).await?.len()),
            };
            return Ok(Tally { eligible, ..Tally::default() });
        };
        let keyed = match anybody {
            true => tx.keyed_candidate_count(attempt, now).await?,
            false => count(keyed(tx, task, round, now).await?.len()),
        };
        // Once a period all that is ready is taken, not who answers first.
        let pending = match task.spec.schedule.mode {
            Mode::SemiSync => count(eligible(tx, task, round, now).await?.len()).saturating_sub(keyed),
            Mode::Sync | Mode::Buffered => 0,
        };
        return Ok(Tally { eligible: keyed, pending, ..Tally::default() });
    }
    Ok(tx.tally(round.key).await?)
}

/// The facts about each of its groups, if its cohort is divided.
pub(super) async fn groups_of(tx: &mut Transaction<'_>, round: &Round) -> Result<Vec<GroupTally>, StepError> {
    let is_drawn = round.limits.groups.is_some() && round.state != RoundState::Selecting;
    Ok(if is_drawn { tx.group_tallies(round.key).await? } else { Vec::new() })
}

/// Who may be drawn into `round` now, in the order of names.
pub(super) async fn eligible(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
    now: Timestamp,
) -> Result<Vec<Candidate>, StepError> {
    let mut candidates = tx.candidates(task.id, now).await?;
    let may = admission(tx, task, round, now).await?;
    candidates.retain(may);
    Ok(candidates)
}

/// Whether [`admission`] lets everybody pass that is there: they need only be counted, which many devices that wait make
/// worth while.
fn takes_anybody(task: &TaskRow, round: &Round) -> bool {
    round.limits.sampled.is_none()
        && task.spec.ahead().is_none()
        && task.spec.selection.require == Requirements::default()
}

/// Who may be in the round: whoever meets the requirements, was sampled or will be sampled from where the task samples, and holds
/// a finished update where the task trains ahead.
async fn admission<'a>(
    tx: &mut Transaction<'_>,
    task: &'a TaskRow,
    round: &Round,
    now: Timestamp,
) -> Result<impl Fn(&Candidate) -> bool + use<'a>, StepError> {
    let sampled = match round.limits.sampled {
        // Nobody is drawn yet: these are whom it will be made from.
        Some(_) if task.spec.sampling_amplifies() => {
            let mut population = population(tx, task).await?;
            population.sort_unstable();
            Some(population)
        }
        Some(_) => Some(tx.sampled(round.key).await?),
        None => None,
    };
    let standings = match task.spec.ahead() {
        Some(ahead) => Some(TrainingStates::read(tx, task, &ahead, now).await?),
        None => None,
    };
    let number = round.key.round;
    Ok(move |candidate: &Candidate| {
        standings.as_ref().is_none_or(|standings| standings.ready(candidate.participant).is_some())
            && sampled.as_ref().is_none_or(|sampled| sampled.binary_search(&candidate.participant).is_ok())
            && candidate.check(&task.spec.selection.require, number, now).is_ok()
    })
}

/// The same with secure aggregation: of those, who gave keys for this attempt, with the advertisement of the keys.
pub(super) async fn keyed(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
    now: Timestamp,
) -> Result<Vec<(Candidate, Bytes)>, StepError> {
    let mut keyed = tx.keyed_candidates(round.key, now).await?;
    let may = admission(tx, task, round, now).await?;
    keyed.retain(|(candidate, _)| may(candidate));
    Ok(keyed)
}
