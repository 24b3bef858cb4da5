//! The one rule that moves a round: from its state, a count of facts and the time, what happens next.
//!
//! It is a pure function. Whoever holds the round's lease calls it, does what it says and stores the outcome by compare
//! and swap; asking twice gives the same answer.

use crate::round::{FailureReason, Round, RoundState};
use crate::time::Timestamp;

/// The facts about a round that the decision needs, counted in one transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Eligible participants checked in now; counted only while selecting.
    pub eligible: u32,
    /// Participants that the present phase still waits for. While selecting: those whose finished updates are to be in the
    /// round and who have not given keys for it yet, where the round is to take all there are.
    pub pending: u32,
    /// Messages of the present phase of secure aggregation: dealers, signatures or answers. 0 in other phases.
    pub answered: u32,
    /// Masked inputs accepted.
    pub reported: u32,
    /// Whether the round's model version is stored.
    pub published: bool,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing before this time, unless the tally changes.
    Wait(Timestamp),
    /// The clock jumped back behind the phase's start: start the phase's time anew, or its deadline would never come.
    Rebase,
    /// The phase has what it needs; go to the state given, which is no failure.
    Close(RoundState),
    /// The round cannot succeed any more.
    Abort(FailureReason),
    /// The round has ended already.
    Done,
}

/// Decides what happens to `round` now.
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
    // Whoever was sampled is waited for: who answers first must not decide who takes part.
    let wanted = round.limits.sampled.unwrap_or(limits.min);
    if (tally.eligible >= wanted && tally.pending == 0) || (late && tally.eligible >= limits.min) {
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

/// A phase of secure aggregation: everybody's answer is wanted, [`Round::answers_needed`] of them are needed.
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
