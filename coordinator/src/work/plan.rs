//! Which step comes next: a pure function of the stored facts and the time.

use std::time::Duration;

use federation::advance::{Decision, advance};
use federation::round::{Round, RoundState};
use federation::task::TaskStatus;
use federation::time::Timestamp;

use super::WorkConfig;
use super::situation::Situation;

/// What to do for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing before this time, if any, unless facts change.
    Wait(Option<Timestamp>),
    /// This, now.
    Do(Step),
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Open the next attempt.
    OpenRound,
    /// Leave the phase, whichever way, or start its time anew.
    ClosePhase,
    /// Fold inputs into the partial sum.
    SumChunk,
    /// Fold the last inputs and release the sum.
    ReleaseSum,
    /// Make the released sum a model version.
    PublishVersion,
}

impl Step {
    /// The stable name for logs and metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::OpenRound => "open_round",
            Self::ClosePhase => "close_phase",
            Self::SumChunk => "sum_chunk",
            Self::ReleaseSum => "release_sum",
            Self::PublishVersion => "publish_version",
        }
    }
}

/// Chooses. `packed_len` is the size of one input, in bytes.
pub(super) fn plan(situation: &Situation, packed_len: u64, config: &WorkConfig, now: Timestamp) -> Next {
    let Some(round) = situation.open_round() else { return open(situation, config, now) };
    match advance(round, &situation.tally, now) {
        Decision::Close(RoundState::Completed) => Next::Do(Step::PublishVersion),
        Decision::Close(_) | Decision::Abort(_) | Decision::Rebase => Next::Do(Step::ClosePhase),
        Decision::Done => Next::Wait(None),
        Decision::Wait(until) => match round.state {
            RoundState::Collecting if worth_folding(situation.unfolded, packed_len, config) => Next::Do(Step::SumChunk),
            RoundState::Aggregating if situation.released => Next::Do(Step::PublishVersion),
            RoundState::Aggregating if situation.unfolded > chunk(packed_len, config) => Next::Do(Step::SumChunk),
            RoundState::Aggregating => Next::Do(Step::ReleaseSum),
            _ => Next::Wait(Some(until)),
        },
    }
}

fn open(situation: &Situation, config: &WorkConfig, now: Timestamp) -> Next {
    let task = &situation.task;
    if task.status != TaskStatus::Active || task.rounds_completed >= task.spec.rounds.count {
        return Next::Wait(None);
    }
    match situation.latest.as_ref().and_then(|row| opens_at(&row.round, config)) {
        // An attempt that seems to have ended in the future was ended before the clock was set back: no reason to wait.
        Some((ended_at, opens_at)) if ended_at <= now && now < opens_at => Next::Wait(Some(opens_at)),
        _ => Next::Do(Step::OpenRound),
    }
}

/// When `round` failed, and when it may be tried again.
fn opens_at(round: &Round, config: &WorkConfig) -> Option<(Timestamp, Timestamp)> {
    let ended_at = (round.state == RoundState::Failed).then_some(round.state_since)?;
    Some((ended_at, ended_at.plus(retry_delay(round.attempt, config))))
}

/// Exponential and bounded; a function of the attempt's number, so that no memory is needed.
fn retry_delay(failed_attempt: u32, config: &WorkConfig) -> Duration {
    let doublings = failed_attempt.saturating_sub(1).min(31);
    config.retry_initial.saturating_mul(1 << doublings).min(config.retry_max)
}

fn worth_folding(unfolded: u32, packed_len: u64, config: &WorkConfig) -> bool {
    unfolded > 0 && (unfolded >= config.fold_inputs || u64::from(unfolded) * packed_len >= config.fold_bytes)
}

/// Most inputs that one step folds: a bound on what is repeated if it dies.
pub(super) fn chunk(packed_len: u64, config: &WorkConfig) -> u32 {
    let by_bytes = u32::try_from(config.fold_bytes / packed_len.max(1)).unwrap_or(u32::MAX);
    by_bytes.max(config.fold_inputs).clamp(1, 1024)
}
