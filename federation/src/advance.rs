//! The rule that advances a round: given its state, counted facts and the time, it decides the next step.
//!
//! It is a pure function. The holder of the round's lease calls it, executes the decision and stores the outcome by compare and swap;
//! repeated calls give the same answer.

use crate::round::{FailureReason, Round, RoundState};
use crate::time::Timestamp;

/// The facts needed for the decision on a round, counted in one transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of eligible participants checked in; counted only while selecting.
    pub eligible: u32,
    /// Number of participants awaited by the current phase. While selecting for a round that takes all finished updates: participants with
    /// an update that have yet to send keys.
    pub pending: u32,
    /// Number of messages in the current secure aggregation phase: dealers, signatures or answers. 0 in other phases.
    pub answered: u32,
    /// Number of masked inputs accepted.
    pub reported: u32,
    /// Whether the round's model version is stored.
    pub published: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Wait until this time, unless the tally changes.
    Wait(Timestamp),
    /// The clock jumped back behind the phase's start: restart the phase's time, so that its deadline stays reachable.
    Rebase,
    /// The phase is complete; enter the given state, which is not a failure.
    Close(RoundState),
    /// The round cannot succeed any more.
    Abort(FailureReason),
    Done,
}

/// Decides the next step of `round` at `now`.
#[must_use]
pub fn advance(round: &Round, tally: &Tally, now: Timestamp) -> Decision {
    let Some(deadline) = round.deadline_at() else {
        return Decision::Done;
    };
    let decision = match round.state {
        RoundState::Selecting => selecting(round, tally, now >= deadline),
        RoundState::Sharing => {
            answering(round, tally, now >= deadline, RoundState::Collecting, FailureReason::TooFewShares)
        }
        RoundState::Collecting => collecting(round, tally, now >= deadline),
        RoundState::Confirming => {
            answering(round, tally, now >= deadline, RoundState::Unmasking, FailureReason::TooFewConfirmations)
        }
        RoundState::Unmasking => {
            answering(round, tally, now >= deadline, RoundState::Aggregating, FailureReason::TooFewUnmaskShares)
        }
        RoundState::Aggregating => aggregating(tally, now >= deadline),
        RoundState::Completed | RoundState::Failed | RoundState::Cancelled => return Decision::Done,
    };
    match decision {
        Some(decision) => decision,
        None if now < round.state_since => Decision::Rebase,
        None => Decision::Wait(deadline),
    }
}

fn selecting(round: &Round, tally: &Tally, late: bool) -> Option<Decision> {
    let limits = &round.limits.select;
    if round.limits.sampled.is_some_and(|sampled| sampled < limits.min) {
        return Some(Decision::Abort(FailureReason::TooFewParticipants));
    }
    if round.limits.sampled.is_some_and(|sampled| sampled > limits.max) {
        return Some(Decision::Abort(FailureReason::TooManyParticipants));
    }
    if (tally.eligible >= round.limits.wanted() && tally.pending == 0) || (late && tally.eligible >= limits.min) {
        let is_secure = round.limits.secure.is_some();
        return Some(Decision::Close(if is_secure { RoundState::Sharing } else { RoundState::Collecting }));
    }
    late.then_some(Decision::Abort(FailureReason::TooFewParticipants))
}

fn collecting(round: &Round, tally: &Tally, late: bool) -> Option<Decision> {
    let limits = &round.limits.collect;
    let nobody_left = tally.pending == 0;
    if tally.reported >= limits.min && (tally.reported >= limits.max || nobody_left || late) {
        let is_secure = round.limits.secure.is_some();
        return Some(Decision::Close(if is_secure { RoundState::Confirming } else { RoundState::Aggregating }));
    }
    if tally.reported.saturating_add(tally.pending) < limits.min {
        return Some(Decision::Abort(FailureReason::QuorumLost));
    }
    late.then_some(Decision::Abort(FailureReason::TooFewInputs))
}

/// A phase of secure aggregation: waits for all answers, and needs [`Round::answers_needed`] of them.
fn answering(round: &Round, tally: &Tally, late: bool, next: RoundState, too_few: FailureReason) -> Option<Decision> {
    let needed = round.answers_needed().unwrap_or(u32::MAX);
    if tally.answered >= needed && (tally.pending == 0 || late) {
        return Some(Decision::Close(next));
    }
    if tally.answered.saturating_add(tally.pending) < needed {
        return Some(Decision::Abort(FailureReason::QuorumLost));
    }
    late.then_some(Decision::Abort(too_few))
}

fn aggregating(tally: &Tally, late: bool) -> Option<Decision> {
    if tally.published {
        return Some(Decision::Close(RoundState::Completed));
    }
    late.then_some(Decision::Abort(FailureReason::AggregationTimedOut))
}
