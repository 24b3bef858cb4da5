//! Rounds with a cohort divided into groups, each with its own secure aggregation session.
//!
//! All groups go through the phases together. A failing group is excluded, and the round continues while enough groups for the task's
//! robust rule remain.

pub use crate::limits::GroupLimits;

use crate::advance::{Decision, Tally, advance};
use crate::round::{FailureReason, Round, RoundState};

/// The facts about one group needed for the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTally {
    /// As for a round, but `eligible` and `published` are unused.
    pub tally: Tally,
    /// Number of complaints in the group.
    pub complaints: u32,
}

/// The decision for a round and its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupVerdict {
    pub decision: Decision,
    /// Numbers of the groups, from 0, that cannot complete the phase, with the reason.
    pub lost: Vec<(u32, FailureReason)>,
}

/// Decides what happens to `round` at `now`: [`advance`] for a round without groups; otherwise for each group, and then
/// for all of them together. `groups` are in the order of their numbers.
#[must_use]
pub fn advance_groups(
    round: &Round,
    tally: &Tally,
    groups: &[GroupTally],
    now: crate::time::Timestamp,
) -> GroupVerdict {
    let in_session = matches!(
        round.state,
        RoundState::Sharing | RoundState::Collecting | RoundState::Confirming | RoundState::Unmasking
    );
    let Some(limits) = round.limits.groups.filter(|_| in_session) else {
        return GroupVerdict { decision: advance(round, tally, now), lost: Vec::new() };
    };
    // Messages of lost groups are excluded from all sums.
    let healthy = groups.iter().filter(|facts| facts.complaints == 0);
    let reported: u32 = healthy.map(|facts| facts.tally.reported).sum();
    let group = of_group(round, &limits, reported);
    let decisions: Vec<_> = groups.iter().map(|facts| decide(&group, facts, now)).collect();
    let lost: Vec<_> = (0..)
        .zip(&decisions)
        .filter_map(|(at, decision)| if let Decision::Abort(reason) = decision { Some((at, *reason)) } else { None })
        .collect();
    let left = u32::try_from(groups.len() - lost.len()).unwrap_or(u32::MAX);
    let of_left = |count: fn(&Tally) -> u32| -> u32 {
        let alive = groups.iter().zip(&decisions).filter(|(_, decision)| !matches!(decision, Decision::Abort(_)));
        alive.map(|(facts, _)| count(&facts.tally)).sum()
    };
    let (inputs, coming) = match round.state {
        // Dealers may send an input.
        RoundState::Sharing => (of_left(|tally| tally.answered), of_left(|tally| tally.pending)),
        RoundState::Collecting => (of_left(|tally| tally.reported), of_left(|tally| tally.pending)),
        RoundState::Selecting
        | RoundState::Confirming
        | RoundState::Unmasking
        | RoundState::Aggregating
        | RoundState::Completed
        | RoundState::Failed
        | RoundState::Cancelled => (of_left(|tally| tally.reported), 0),
    };
    let decision = if !is_enough(round, left, inputs.saturating_add(coming)) {
        Decision::Abort(lost.first().map_or(FailureReason::QuorumLost, |(_, reason)| *reason))
    } else if let Some(&other) =
        decisions.iter().find(|decision| matches!(decision, Decision::Rebase | Decision::Wait(_)))
    {
        other
    } else if !is_enough(round, left, inputs) {
        let is_sharing = round.state == RoundState::Sharing;
        Decision::Abort(if is_sharing { FailureReason::TooFewShares } else { FailureReason::TooFewInputs })
    } else {
        // The remaining groups agree on the next state.
        decisions.into_iter().find(|decision| matches!(decision, Decision::Close(_))).unwrap_or(Decision::Done)
    };
    GroupVerdict { decision, lost }
}

/// Whether the remaining groups and their inputs suffice for the round: enough groups for its rule, and as many inputs
/// as the task requires in a sum. Applies in every phase.
#[must_use]
pub fn is_enough(round: &Round, groups: u32, inputs: u32) -> bool {
    groups >= round.limits.groups.map_or(1, |limits| limits.needed) && inputs >= round.limits.collect.min
}

/// The round from one group's point of view. Once the task has enough inputs in total, a group with enough inputs stops waiting.
fn of_group(round: &Round, limits: &GroupLimits, reported: u32) -> Round {
    let mut group = round.clone();
    let is_full = reported >= round.limits.collect.max;
    group.cohort = limits.size;
    group.limits.collect.min = limits.collect_min;
    group.limits.collect.max = if is_full { limits.collect_min } else { limits.size };
    group
}

fn decide(group: &Round, facts: &GroupTally, now: crate::time::Timestamp) -> Decision {
    if group.state == RoundState::Collecting && facts.complaints > 0 {
        return Decision::Abort(FailureReason::BadShares);
    }
    advance(group, &facts.tally, now)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::id::{Attempt, TaskId};
    use crate::round::{PhaseLimits, RoundLimits, SecureLimits};
    use crate::time::Timestamp;

    const START: Timestamp = Timestamp(1_000);
    const LATE: Timestamp = Timestamp(1_000 + 500);

    /// Four groups of five, three of which are needed; each needs three answers.
    fn round(state: RoundState) -> Round {
        let phase = |min, max| PhaseLimits { min, max, deadline_ms: 500 };
        let secure =
            SecureLimits { threshold: 3, share_deadline_ms: 500, confirm_deadline_ms: 500, unmask_deadline_ms: 500 };
        Round {
            key: Attempt { task: TaskId(Uuid::from_u128(1)), round: 1, attempt: 1 },
            state,
            base_version: 0,
            limits: RoundLimits {
                select: phase(20, 20),
                collect: phase(12, 20),
                aggregate_deadline_ms: 500,
                sampled: None,
                round_trip_ms: None,
                secure: Some(secure),
                groups: Some(GroupLimits { size: 5, count: 4, needed: 3, collect_min: 3 }),
            },
            cohort: 20,
            state_since: START,
            opened_at: START,
            failure: None,
        }
    }

    fn verdict(state: RoundState, counts: [(u32, u32); 4], now: Timestamp) -> GroupVerdict {
        let facts = counts.map(|(there, pending)| {
            let reported = if state == RoundState::Collecting { there } else { 5 };
            let answered = if state == RoundState::Collecting { 0 } else { there };
            GroupTally { tally: Tally { pending, answered, reported, ..Tally::default() }, complaints: 0 }
        });
        let total = |count: fn(&Tally) -> u32| facts.iter().map(|facts| count(&facts.tally)).sum();
        let tally = Tally {
            pending: total(|tally| tally.pending),
            answered: total(|tally| tally.answered),
            reported: total(|tally| tally.reported),
            ..Tally::default()
        };
        advance_groups(&round(state), &tally, &facts, now)
    }

    #[test]
    fn a_round_waits_for_its_slowest_group_and_closes_without_one_that_is_lost() {
        let sharing = |counts, now| verdict(RoundState::Sharing, counts, now);
        let collecting = Decision::Close(RoundState::Collecting);
        assert_eq!(sharing([(5, 0); 4], START), GroupVerdict { decision: collecting, lost: vec![] });
        assert_eq!(sharing([(5, 0), (5, 0), (4, 1), (5, 0)], START).decision, Decision::Wait(LATE));
        assert_eq!(sharing([(5, 0), (5, 0), (4, 1), (5, 0)], LATE).decision, collecting);
        let one_lost = vec![(2, FailureReason::QuorumLost)];
        let verdict = sharing([(5, 0), (5, 0), (2, 0), (5, 0)], START);
        assert_eq!(verdict, GroupVerdict { decision: collecting, lost: one_lost });
        let late = sharing([(5, 0), (5, 0), (2, 3), (5, 0)], LATE);
        assert_eq!(late, GroupVerdict { decision: collecting, lost: vec![(2, FailureReason::TooFewShares)] });
    }

    #[test]
    fn with_too_few_groups_it_fails_at_once() {
        let verdict = verdict(RoundState::Confirming, [(0, 0), (5, 0), (2, 0), (1, 4)], START);
        assert_eq!(verdict.decision, Decision::Abort(FailureReason::QuorumLost));
        assert_eq!(verdict.lost.len(), 2);
    }

    #[test]
    fn inputs_are_counted_over_the_groups_that_are_left() {
        let collecting = |counts, now| verdict(RoundState::Collecting, counts, now).decision;
        let confirming = Decision::Close(RoundState::Confirming);
        assert_eq!(collecting([(5, 0), (5, 0), (2, 0), (5, 0)], START), confirming);
        assert_eq!(collecting([(3, 2), (3, 2), (3, 2), (3, 2)], LATE), confirming);
        assert_eq!(collecting([(3, 2), (3, 2), (2, 3), (3, 2)], LATE), Decision::Abort(FailureReason::TooFewInputs));
        assert_eq!(collecting([(3, 0), (3, 0), (2, 0), (4, 1)], START), Decision::Abort(FailureReason::QuorumLost));
    }

    #[test]
    fn inputs_that_are_lost_later_count_no_more() {
        for (state, answers, expected) in [
            (RoundState::Confirming, 4, Decision::Close(RoundState::Unmasking)),
            (RoundState::Unmasking, 4, Decision::Close(RoundState::Aggregating)),
            (RoundState::Confirming, 3, Decision::Abort(FailureReason::QuorumLost)),
            (RoundState::Unmasking, 3, Decision::Abort(FailureReason::QuorumLost)),
        ] {
            let of_group = |reported, answered| GroupTally {
                tally: Tally { reported, answered, ..Tally::default() },
                complaints: 0,
            };
            // Without the second group as many inputs are left as the task wants, or one fewer.
            let groups = [of_group(4, 4), of_group(5, 2), of_group(4, 4), of_group(answers, answers)];
            let verdict = advance_groups(&round(state), &Tally::default(), &groups, START);
            assert_eq!(verdict.decision, expected, "{state}");
            assert_eq!(verdict.lost, [(1, FailureReason::QuorumLost)]);
        }
    }

    #[test]
    fn no_input_is_asked_for_where_too_few_can_come() {
        let sharing = |counts, now| verdict(RoundState::Sharing, counts, now).decision;
        assert_eq!(sharing([(3, 2), (3, 2), (2, 3), (3, 2)], LATE), Decision::Abort(FailureReason::TooFewShares));
        assert_eq!(sharing([(3, 0), (3, 0), (2, 0), (4, 1)], START), Decision::Abort(FailureReason::QuorumLost));
    }

    #[test]
    fn a_complaint_costs_its_group_alone() {
        let mut facts = [GroupTally { tally: Tally { reported: 5, ..Tally::default() }, complaints: 0 }; 4];
        facts[1].complaints = 1;
        let tally = Tally { reported: 20, ..Tally::default() };
        let verdict = advance_groups(&round(RoundState::Collecting), &tally, &facts, START);
        assert_eq!(verdict.decision, Decision::Close(RoundState::Confirming));
        assert_eq!(verdict.lost, [(1, FailureReason::BadShares)]);
    }

    #[test]
    fn the_rest_of_a_round_is_as_without_groups() {
        for state in [RoundState::Selecting, RoundState::Aggregating, RoundState::Completed] {
            let round = round(state);
            let tally = Tally { eligible: 20, ..Tally::default() };
            let verdict = advance_groups(&round, &tally, &[], START);
            assert_eq!(verdict, GroupVerdict { decision: advance(&round, &tally, START), lost: vec![] });
        }
    }
}
