//! The life of a round: every small case of `advance`, whole lives under a clock that jumps, and the diagram in `docs/PROTOCOL.md`, which
//! is generated from the code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use federation::advance::{Decision, Tally, advance};
use federation::id::{Attempt, TaskId};
use federation::round::{AssignmentState, FailureReason, PhaseLimits, Round, RoundLimits, RoundState, SecureLimits};
use federation::task_status::TaskStatus;
use federation::time::{Clock, MockClock, Timestamp};
use proptest::prelude::*;

const SINCE: Timestamp = Timestamp(1_000_000);
const DEADLINE_MS: i64 = 100;

const THRESHOLD: u32 = 2;

fn limits(is_secure: bool) -> RoundLimits {
    let deadline_ms = DEADLINE_MS.unsigned_abs();
    let secure = SecureLimits {
        threshold: THRESHOLD,
        share_deadline_ms: deadline_ms,
        confirm_deadline_ms: deadline_ms,
        unmask_deadline_ms: deadline_ms,
    };
    RoundLimits {
        secure: is_secure.then_some(secure),
        select: PhaseLimits { min: 3, max: 5, deadline_ms: DEADLINE_MS.unsigned_abs() },
        collect: PhaseLimits { min: 2, max: 3, deadline_ms: DEADLINE_MS.unsigned_abs() },
        aggregate_deadline_ms: DEADLINE_MS.unsigned_abs(),
        sampled: None,
        round_trip_ms: None,
        groups: None,
    }
}

/// The allowed next states.
fn successors(state: RoundState) -> &'static [RoundState] {
    match state {
        RoundState::Selecting => {
            &[RoundState::Sharing, RoundState::Collecting, RoundState::Failed, RoundState::Cancelled]
        }
        RoundState::Sharing => &[RoundState::Collecting, RoundState::Failed, RoundState::Cancelled],
        RoundState::Collecting => {
            &[RoundState::Confirming, RoundState::Aggregating, RoundState::Failed, RoundState::Cancelled]
        }
        RoundState::Confirming => &[RoundState::Unmasking, RoundState::Failed, RoundState::Cancelled],
        RoundState::Unmasking => &[RoundState::Aggregating, RoundState::Failed, RoundState::Cancelled],
        RoundState::Aggregating => &[RoundState::Completed, RoundState::Failed, RoundState::Cancelled],
        RoundState::Completed | RoundState::Failed | RoundState::Cancelled => &[],
    }
}

fn round(state: RoundState, is_secure: bool) -> Round {
    Round {
        key: Attempt { task: TaskId(uuid::Uuid::from_u128(7)), round: 1, attempt: 1 },
        state,
        base_version: 0,
        limits: limits(is_secure),
        cohort: 4,
        state_since: SINCE,
        opened_at: SINCE,
        failure: None,
    }
}

/// Every state with and without secure aggregation × every tally up to a little above the limits × the times around each edge.
fn for_every_case(mut check: impl FnMut(&Round, &Tally, Timestamp, Decision)) {
    let times = [-1_000_000, -1, 0, 1, DEADLINE_MS - 1, DEADLINE_MS, DEADLINE_MS + 1, i64::MAX / 2];
    for (state, is_secure) in RoundState::ALL.into_iter().flat_map(|state| [(state, false), (state, true)]) {
        if !is_secure && is_secure_phase(state) {
            continue;
        }
        let round = round(state, is_secure);
        for_every_tally(|tally| {
            for offset in times {
                let now = Timestamp(SINCE.0 + offset);
                check(&round, tally, now, advance(&round, tally, now));
            }
        });
    }
}

fn is_secure_phase(state: RoundState) -> bool {
    matches!(state, RoundState::Sharing | RoundState::Confirming | RoundState::Unmasking)
}

fn for_every_tally(mut check: impl FnMut(&Tally)) {
    for eligible in 0..=6 {
        for pending in 0..=5 {
            for count in 0..=5 {
                for published in [false, true] {
                    check(&Tally { eligible, pending, reported: count, answered: 0, published });
                    check(&Tally { eligible, pending, reported: 2, answered: count, published });
                }
            }
        }
    }
}

#[test]
fn a_round_that_ended_is_done_and_no_other() {
    for_every_case(|round, tally, now, decision| {
        assert_eq!(decision == Decision::Done, round.state.is_terminal(), "{round:?} {tally:?} {now}");
    });
}

#[test]
fn closing_leads_only_to_a_successor_that_is_no_failure() {
    for_every_case(|round, tally, now, decision| {
        if let Decision::Close(next) = decision {
            assert!(successors(round.state).contains(&next), "{:?} to {next}: {tally:?} {now}", round.state);
            assert!(!matches!(next, RoundState::Failed | RoundState::Cancelled));
        }
    });
}

#[test]
fn each_phase_closes_exactly_when_it_has_what_it_needs() {
    for_every_case(|round, tally, now, decision| {
        let late = now.0 >= SINCE.0 + DEADLINE_MS;
        let enough = match round.state {
            RoundState::Selecting => tally.eligible >= 3 && (tally.pending == 0 || late),
            RoundState::Collecting => tally.reported >= 2 && (tally.reported >= 3 || tally.pending == 0 || late),
            RoundState::Aggregating => tally.published,
            state if is_secure_phase(state) => tally.answered >= THRESHOLD && (tally.pending == 0 || late),
            _ => false,
        };
        assert_eq!(matches!(decision, Decision::Close(_)), enough, "{:?} {tally:?} {now}", round.state);
    });
}

#[test]
fn secure_rounds_take_the_secure_road_and_no_other_does() {
    for_every_case(|round, tally, now, decision| {
        let Decision::Close(next) = decision else { return };
        let is_secure = round.limits.secure.is_some();
        let expected = match (round.state, is_secure) {
            (RoundState::Selecting, true) => RoundState::Sharing,
            (RoundState::Selecting, false) | (RoundState::Sharing, _) => RoundState::Collecting,
            (RoundState::Collecting, true) => RoundState::Confirming,
            (RoundState::Confirming, _) => RoundState::Unmasking,
            (RoundState::Collecting, false) | (RoundState::Unmasking, _) => RoundState::Aggregating,
            _ => RoundState::Completed,
        };
        assert_eq!(next, expected, "{:?} {tally:?} {now}", round.state);
    });
}

#[test]
fn a_round_is_spent_once_masked_inputs_may_be_out() {
    for state in RoundState::ALL {
        assert!(!round(state, false).is_spent(), "{state}: without masks there is nothing to tell apart");
        let spent = !matches!(
            state,
            RoundState::Selecting
                | RoundState::Sharing
                | RoundState::Completed
                | RoundState::Failed
                | RoundState::Cancelled
        );
        assert_eq!(round(state, true).is_spent(), spent, "{state}");
        let missed = match state {
            RoundState::Collecting | RoundState::Confirming => Some(RoundState::Confirming),
            RoundState::Unmasking => Some(RoundState::Unmasking),
            _ => None,
        };
        assert_eq!((round(state, true).missed_in(), round(state, false).missed_in()), (missed, None), "{state}");
    }
}

#[test]
fn each_abort_has_the_reason_that_fits() {
    for_every_case(|round, tally, now, decision| {
        let Decision::Abort(reason) = decision else { return };
        let late = now.0 >= SINCE.0 + DEADLINE_MS;
        let fits = match reason {
            FailureReason::TooFewParticipants => {
                round.state == RoundState::Selecting && late && tally.eligible < round.limits.select.min
            }
            FailureReason::TooFewInputs => {
                round.state == RoundState::Collecting && late && tally.reported < round.limits.collect.min
            }
            FailureReason::QuorumLost if round.state == RoundState::Collecting => {
                tally.reported + tally.pending < round.limits.collect.min
            }
            FailureReason::QuorumLost => is_secure_phase(round.state) && tally.answered + tally.pending < THRESHOLD,
            FailureReason::TooFewShares => round.state == RoundState::Sharing && late && tally.answered < THRESHOLD,
            FailureReason::TooFewConfirmations => {
                round.state == RoundState::Confirming && late && tally.answered < THRESHOLD
            }
            FailureReason::TooFewUnmaskShares => {
                round.state == RoundState::Unmasking && late && tally.answered < THRESHOLD
            }
            FailureReason::AggregationTimedOut => round.state == RoundState::Aggregating && late && !tally.published,
            FailureReason::GarbageSum
            | FailureReason::InputLost
            | FailureReason::BadShares
            | FailureReason::TooManyParticipants
            | FailureReason::BudgetExceeded
            | FailureReason::UnmaskingFailed => false,
        };
        assert!(fits, "{reason}: {:?} {tally:?} {now}", round.state);
    });
}

#[test]
fn a_sampled_cohort_is_waited_for_and_goes_on_without_absentees_at_its_deadline() {
    let decide = |sampled, eligible, after| {
        let mut round = round(RoundState::Selecting, true);
        round.limits.sampled = Some(sampled);
        advance(&round, &Tally { eligible, ..Tally::default() }, Timestamp(SINCE.0 + after))
    };
    let (wait, sharing) = (Decision::Wait(Timestamp(SINCE.0 + DEADLINE_MS)), Decision::Close(RoundState::Sharing));
    assert_eq!(decide(5, 3, 0), wait, "enough to go on, but two are missing");
    assert_eq!(decide(5, 5, 0), sharing);
    assert_eq!(decide(5, 3, DEADLINE_MS), sharing);
    assert_eq!(decide(5, 2, DEADLINE_MS), Decision::Abort(FailureReason::TooFewParticipants));
    assert_eq!(decide(2, 2, 0), Decision::Abort(FailureReason::TooFewParticipants), "drawn too small");
    assert_eq!(decide(6, 6, 0), Decision::Abort(FailureReason::TooManyParticipants), "drawn too large");
}

#[test]
fn waiting_ends_at_the_deadline_which_lies_ahead() {
    for_every_case(|round, tally, now, decision| {
        let deadline = Timestamp(SINCE.0 + DEADLINE_MS);
        match decision {
            Decision::Wait(until) => assert!(until == deadline && SINCE <= now && now < deadline, "{tally:?} {now}"),
            Decision::Rebase => assert!(now < SINCE, "{:?} {tally:?} {now}", round.state),
            Decision::Close(_) | Decision::Abort(_) | Decision::Done => {}
        }
    });
}

#[test]
fn one_more_input_never_costs_a_round() {
    for_every_case(|round, tally, now, decision| {
        let Decision::Close(next) = decision else { return };
        let Tally { eligible, answered, reported, .. } = *tally;
        let more = Tally { eligible: eligible + 1, answered: answered + 1, reported: reported + 1, ..*tally };
        assert_eq!(advance(round, &more, now), Decision::Close(next), "{tally:?} {now}");
    });
}

#[test]
fn the_end_of_time_does_not_wrap() {
    let mut round = round(RoundState::Selecting, true);
    round.state_since = Timestamp(i64::MAX - 1);
    let decision = advance(&round, &Tally::default(), Timestamp(0));
    assert_eq!(decision, Decision::Rebase);
    assert_eq!(round.deadline_at(), Some(Timestamp(i64::MAX)));
}

/// The events of a life.
#[derive(Clone, Debug)]
enum Event {
    CheckIn,
    Leave,
    Report,
    Abandon,
    Publish,
    Jump(i64),
    Ask,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::CheckIn),
        1 => Just(Event::Leave),
        4 => Just(Event::Report),
        1 => Just(Event::Abandon),
        1 => Just(Event::Publish),
        3 => (-300_i64..150).prop_map(Event::Jump),
        6 => Just(Event::Ask),
    ]
}

/// A round with the facts around it, as a coordinator would keep them.
struct Life {
    round: Round,
    tally: Tally,
    clock: MockClock,
}

impl Life {
    fn new(is_secure: bool) -> Self {
        Self { round: round(RoundState::Selecting, is_secure), tally: Tally::default(), clock: MockClock::new(SINCE) }
    }

    fn apply(&mut self, event: &Event) {
        let tally = &mut self.tally;
        match event {
            Event::CheckIn => tally.eligible += 1,
            Event::Leave => tally.eligible = tally.eligible.saturating_sub(1),
            Event::Report if tally.pending > 0 => {
                tally.pending -= 1;
                match self.round.state {
                    RoundState::Collecting => tally.reported += 1,
                    _ => tally.answered += 1,
                }
            }
            Event::Abandon => tally.pending = tally.pending.saturating_sub(1),
            Event::Publish => tally.published = self.round.state == RoundState::Aggregating,
            Event::Jump(by) => self.clock.set(Timestamp(self.clock.now().0 + by)),
            Event::Ask => self.ask(),
            Event::Report => {}
        }
    }

    /// Decides and executes the decision, like the holder of the lease.
    fn ask(&mut self) {
        let now = self.clock.now();
        let was_over = self.round.state.is_terminal();
        let next = match advance(&self.round, &self.tally, now) {
            Decision::Close(next) => next,
            Decision::Abort(reason) => {
                self.round.failure = Some(reason);
                RoundState::Failed
            }
            Decision::Rebase => {
                self.round.state_since = now;
                return;
            }
            Decision::Wait(_) | Decision::Done => return,
        };
        assert!(!was_over, "a round that ended never changes again");
        assert!(successors(self.round.state).contains(&next));
        self.tally.pending = match (next, self.round.state) {
            (RoundState::Sharing, _) | (RoundState::Collecting, RoundState::Selecting) => self.tally.eligible.min(4),
            (RoundState::Confirming, _) => self.tally.reported,
            _ => self.tally.answered,
        };
        self.tally.answered = 0;
        self.round.state = next;
        self.round.state_since = now;
    }
}

proptest! {
    #[test]
    fn once_time_passes_every_round_ends(events in proptest::collection::vec(event(), 0..60), is_secure: bool) {
        let mut life = Life::new(is_secure);
        for event in &events {
            life.apply(event);
        }
        // The round must reach its end; the clock may lie behind the phase's start, hence one rebase per phase.
        for _ in 0..12 {
            life.ask();
            life.clock.advance(Duration::from_millis(DEADLINE_MS.unsigned_abs()));
        }
        prop_assert!(life.round.state.is_terminal(), "{:?} after {events:?}", life.round);
        prop_assert_eq!(life.round.failure.is_some(), life.round.state == RoundState::Failed);
    }

    #[test]
    fn a_clock_that_jumps_back_delays_a_round_by_one_phase_at_most(back in 1_i64..1_000_000, state in 0_usize..6) {
        let mut life = Life::new(true);
        life.round.state = RoundState::ALL[state];
        life.tally.pending = 4;
        life.clock.set(Timestamp(SINCE.0 - back));
        life.ask();
        prop_assert_eq!(life.round.state_since, life.clock.now());
        prop_assert_eq!(life.round.state, RoundState::ALL[state]);
        life.clock.advance(Duration::from_millis(DEADLINE_MS.unsigned_abs() - 1));
        life.ask();
        prop_assert_eq!(life.round.state, RoundState::ALL[state]);
        life.clock.advance(Duration::from_millis(1));
        life.ask();
        prop_assert_eq!(life.round.state, RoundState::Failed);
    }
}

#[test]
fn names_come_back_and_are_unique() {
    fn check<T: Copy + PartialEq + std::fmt::Debug + std::fmt::Display + std::str::FromStr>(all: &[T])
    where
        T::Err: std::fmt::Debug,
    {
        let names: BTreeSet<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), all.len());
        for value in all {
            assert_eq!(value.to_string().parse::<T>().unwrap(), *value);
        }
        assert!("unheard_of".parse::<T>().is_err());
    }
    check(&RoundState::ALL);
    check(&FailureReason::ALL);
    check(&AssignmentState::ALL);
    for state in AssignmentState::ALL {
        assert!(!(state.is_pending() && state.is_dropped()), "{state}");
        assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
    }
}

#[test]
fn names_in_rows_and_in_json_are_pinned() {
    fn pinned<T: Copy + serde::Serialize, const N: usize>(
        all: [T; N],
        as_str: fn(T) -> &'static str,
        names: [&str; N],
    ) {
        assert_eq!(all.map(as_str), names);
        assert_eq!(serde_json::to_value(all.to_vec()).unwrap(), serde_json::json!(names.to_vec()));
    }
    pinned(
        RoundState::ALL,
        RoundState::as_str,
        [
            "SELECTING",
            "SHARING",
            "COLLECTING",
            "CONFIRMING",
            "UNMASKING",
            "AGGREGATING",
            "COMPLETED",
            "FAILED",
            "CANCELLED",
        ],
    );
    pinned(
        FailureReason::ALL,
        FailureReason::as_str,
        [
            "too_few_participants",
            "too_few_shares",
            "too_few_inputs",
            "too_few_confirmations",
            "too_few_unmask_shares",
            "bad_shares",
            "unmasking_failed",
            "quorum_lost",
            "aggregation_timed_out",
            "garbage_sum",
            "input_lost",
            "too_many_participants",
            "budget_exceeded",
        ],
    );
    pinned(
        AssignmentState::ALL,
        AssignmentState::as_str,
        ["ASSIGNED", "WORKING", "REPORTED", "ABANDONED", "EXCUSED", "REVOKED", "LATE", "RELEASED"],
    );
    pinned(TaskStatus::ALL, TaskStatus::as_str, ["ACTIVE", "PAUSED", "COMPLETED", "CANCELLED", "BUDGET_EXHAUSTED"]);
}

/// Mermaid text of the states, their successors, and the reasons `advance` gives on the way to FAILED.
fn diagram() -> String {
    let mut reasons: BTreeMap<RoundState, BTreeSet<FailureReason>> = BTreeMap::new();
    for_every_case(|round, _, _, decision| {
        if let Decision::Abort(reason) = decision {
            reasons.entry(round.state).or_default().insert(reason);
        }
    });
    let mut text = String::from("stateDiagram-v2\n    [*] --> SELECTING\n");
    for state in RoundState::ALL {
        for next in successors(state) {
            text += &format!("    {state} --> {next}");
            if *next == RoundState::Failed {
                let names: Vec<_> = reasons[&state].iter().map(|reason| reason.as_str()).collect();
                text += &format!(": {}", names.join(", "));
            }
            text += "\n";
        }
        if state.is_terminal() {
            text += &format!("    {state} --> [*]\n");
        }
    }
    text
}

#[test]
fn the_diagram_in_the_documentation_is_the_one_in_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/PROTOCOL.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let block = page.split_once("```mermaid\n").and_then(|(_, rest)| rest.split_once("```"));
    let expected = diagram();
    assert_eq!(
        block.map(|(block, _)| block),
        Some(expected.as_str()),
        "put this into the mermaid block of {}:\n{expected}",
        path.display()
    );
}
