//! Chooses the next step: a pure function of the stored facts and the time.

use federation::advance::Decision;
use federation::groups::advance_groups;
use federation::round::RoundState;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use federation::training::{Opening, opening};

use super::situation::Situation;
use crate::work::WorkConfig;
use crate::work::summing::sums::Slices;
use recipe::TaskModel;

/// The next action for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::work) enum Next {
    /// Wait until this time, if any, or until facts change.
    Wait(Option<Timestamp>),
    /// Take this step now.
    Do(Step),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::work) enum Step {
    /// Invite participants to train ahead.
    Grant,
    /// Open the next attempt.
    OpenRound,
    /// Close the phase, fail the round, or restart the deadline.
    ClosePhase,
    /// Fold inputs into the partial sum.
    SumChunk,
    /// Fold the last inputs and release the sum.
    ReleaseSum,
    /// Publish the model version of the released sum.
    PublishVersion,
}

impl Step {
    /// The stable name for logs and metrics.
    pub(in crate::work) fn as_str(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::OpenRound => "open_round",
            Self::ClosePhase => "close_phase",
            Self::SumChunk => "sum_chunk",
            Self::ReleaseSum => "release_sum",
            Self::PublishVersion => "publish_version",
        }
    }
}

/// The resources for folding an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::work) struct InputSize {
    /// Its size in bytes.
    pub(in crate::work) packed_len: u64,
    /// Maximum number of inputs added at once.
    pub(super) at_once: u32,
}

impl InputSize {
    pub(in crate::work) fn of(model: &TaskModel, config: &WorkConfig) -> Self {
        Self { packed_len: model.packed_len(), at_once: Slices::of(model, config).inputs_at_once() }
    }
}

/// Chooses the next action.
pub(in crate::work) fn plan(situation: &Situation, inputs: InputSize, config: &WorkConfig, now: Timestamp) -> Next {
    let Some(ahead) = &situation.ahead else { return plan_round(situation, inputs, config, now) };
    if ahead.grantable > 0 {
        return Next::Do(Step::Grant);
    }
    match (plan_round(situation, inputs, config, now), ahead.lapse) {
        (Next::Wait(until), Some(lapse)) => Next::Wait(Some(until.map_or(lapse, |until| until.min(lapse)))),
        (next, _) => next,
    }
}

fn plan_round(situation: &Situation, inputs: InputSize, config: &WorkConfig, now: Timestamp) -> Next {
    let Some(round) = situation.open_round() else { return open(situation, config, now) };
    let is_robust = situation.task.spec.aggregation.robust.is_some();
    match advance_groups(round, &situation.tally, &situation.groups, now).decision {
        Decision::Close(RoundState::Completed) => Next::Do(Step::PublishVersion),
        Decision::Close(_) | Decision::Abort(_) | Decision::Rebase => Next::Do(Step::ClosePhase),
        Decision::Done => Next::Wait(None),
        Decision::Wait(until) => match round.state {
            RoundState::Collecting if situation.complained => Next::Do(Step::ClosePhase),
            RoundState::Aggregating if situation.released => Next::Do(Step::PublishVersion),
            // A robust rule needs all inputs together.
            RoundState::Aggregating if is_robust => Next::Do(Step::ReleaseSum),
            RoundState::Collecting | RoundState::Confirming | RoundState::Unmasking
                if !is_robust
                    && !situation.may_leave_out
                    && worth_folding(situation.unfolded, inputs.packed_len, config) =>
            {
                Next::Do(Step::SumChunk)
            }
            RoundState::Aggregating if situation.unfolded > chunk(inputs, config) => Next::Do(Step::SumChunk),
            RoundState::Aggregating => Next::Do(Step::ReleaseSum),
            RoundState::Selecting
            | RoundState::Sharing
            | RoundState::Collecting
            | RoundState::Confirming
            | RoundState::Unmasking
            | RoundState::Completed
            | RoundState::Failed
            | RoundState::Cancelled => Next::Wait(Some(until)),
        },
    }
}

fn open(situation: &Situation, config: &WorkConfig, now: Timestamp) -> Next {
    let task = &situation.task;
    if task.status != TaskStatus::Active || task.rounds_completed >= task.spec.rounds.count {
        return Next::Wait(None);
    }
    let pauses = task.spec.rounds.max_attempts > 0;
    if !pauses && situation.enrolment.is_some_and(|enrolment| enrolment.enrolled < enrolment.needed) {
        // Check-ins of new participants wake the engine. A task with a maximum number of attempts uses them up instead.
        return Next::Wait(None);
    }
    match situation.failures.and_then(|failures| failures.pause_until(config.retries(), now)) {
        Some(until) => Next::Wait(Some(until)),
        None => when_ready(situation, now),
    }
}

/// With training ahead, a round opens by `federation::training::opening`.
fn when_ready(situation: &Situation, now: Timestamp) -> Next {
    let spec = &situation.task.spec;
    let (Some(ahead), Some(at_present)) = (spec.ahead(), &situation.ahead) else { return Next::Do(Step::OpenRound) };
    let min = spec.select_min();
    match opening(&ahead, at_present.ready, min, at_present.last_opened, now) {
        Opening::Now => Next::Do(Step::OpenRound),
        Opening::At(at) => Next::Wait(Some(at)),
        Opening::WhenReady => Next::Wait(None),
    }
}

fn worth_folding(unfolded: u32, packed_len: u64, config: &WorkConfig) -> bool {
    unfolded > 0 && (unfolded >= config.fold_inputs || u64::from(unfolded) * packed_len >= config.fold_bytes)
}

/// Maximum inputs folded by one step: bounds the repetition after a crash.
pub(in crate::work) fn chunk(inputs: InputSize, config: &WorkConfig) -> u32 {
    let by_bytes = u32::try_from(config.fold_bytes / inputs.packed_len.max(1)).unwrap_or(u32::MAX);
    by_bytes.max(config.fold_inputs).min(inputs.at_once).clamp(1, 1024)
}

#[cfg(test)]
mod tests {
    use federation::advance::Tally;
    use federation::id::{Attempt, TaskId};
    use federation::round::{FailureReason, Round};
    use store::entity::round::RoundRow;
    use store::entity::task::TaskRow;
    use uuid::Uuid;

    use super::*;
    use crate::rounds::waiting::retries::Failures;
    use crate::rounds::waiting::shortage::Enrolment;
    use crate::work::engine::situation::AheadStatus;

    const NOW: Timestamp = Timestamp(1_000_000);
    const PACKED_LEN: u64 = 1 << 20;

    fn inputs(packed_len: u64) -> InputSize {
        InputSize { packed_len, at_once: u32::MAX }
    }

    fn task() -> TaskRow {
        let spec = serde_json::json!({ "name": "t", "model": { "tensors": [{ "name": "w", "shape": [3] }] } });
        TaskRow {
            id: TaskId(Uuid::from_u128(1)),
            spec: serde_json::from_value(spec).unwrap(),
            status: TaskStatus::Active,
            parameters: 3,
            created_at: NOW,
            rounds_completed: 0,
            rounds_forfeited: 0,
            model_version: 0,
            promoted_version: None,
        }
    }

    fn round(state: RoundState, attempt: u32) -> RoundRow {
        let round = Round {
            key: Attempt { task: task().id, round: 1, attempt },
            state,
            base_version: 0,
            limits: federation::round::RoundLimits::of(&task().spec),
            cohort: 10,
            state_since: NOW,
            opened_at: NOW,
            failure: (state == RoundState::Failed).then_some(FailureReason::QuorumLost),
        };
        let (metrics, model_version, ended_at) = (Vec::new(), None, None);
        RoundRow { round, reported: 0, bytes_up: 0, bytes_down: 0, metrics, model_version, ended_at }
    }

    fn situation(latest: Option<RoundRow>) -> Situation {
        let tally = Tally { pending: 10, ..Tally::default() };
        let failed = latest.as_ref().map(|row| &row.round).filter(|round| round.state == RoundState::Failed);
        let failures = failed.map(|round| Failures { count: round.key.attempt, last_at: round.state_since });
        Situation {
            task: task(),
            latest,
            failures,
            tally,
            groups: Vec::new(),
            unfolded: 0,
            may_leave_out: false,
            released: false,
            complained: false,
            ahead: None,
            enrolment: None,
        }
    }

    fn next(situation: &Situation, now: i64) -> Next {
        plan(situation, inputs(PACKED_LEN), &WorkConfig::default(), Timestamp(now))
    }

    #[test]
    fn a_failed_attempt_is_followed_by_the_next_after_its_pause() {
        let failed = situation(Some(round(RoundState::Failed, 3)));
        assert_eq!(next(&failed, NOW.0), Next::Wait(Some(Timestamp(NOW.0 + 4000))));
        assert_eq!(next(&failed, NOW.0 + 3999), Next::Wait(Some(Timestamp(NOW.0 + 4000))));
        assert_eq!(next(&failed, NOW.0 + 4000), Next::Do(Step::OpenRound));
        assert_eq!(next(&failed, NOW.0 - 1), Next::Do(Step::OpenRound), "the clock was set back");
        assert_eq!(next(&situation(None), NOW.0), Next::Do(Step::OpenRound));
    }

    #[test]
    fn nothing_is_tried_again_before_enough_are_enrolled() {
        let mut failed = situation(Some(round(RoundState::Failed, 3)));
        failed.enrolment = Some(Enrolment { needed: 8, enrolled: 7 });
        assert_eq!(next(&failed, NOW.0 + 4000), Next::Wait(None));
        // They may come during the next attempt's selection.
        failed.enrolment = Some(Enrolment { needed: 8, enrolled: 8 });
        assert_eq!(next(&failed, NOW.0 + 4000), Next::Do(Step::OpenRound));
    }

    #[test]
    fn a_task_that_pauses_after_so_many_attempts_has_them() {
        let mut failed = situation(Some(round(RoundState::Failed, 3)));
        failed.task.spec.rounds.max_attempts = 5;
        failed.enrolment = Some(Enrolment { needed: 8, enrolled: 7 });
        assert_eq!(next(&failed, NOW.0 + 4000), Next::Do(Step::OpenRound));
    }

    #[test]
    fn only_an_active_task_with_rounds_left_opens_one() {
        for status in TaskStatus::ALL {
            let mut situation = situation(None);
            situation.task.status = status;
            let expected = if status == TaskStatus::Active { Next::Do(Step::OpenRound) } else { Next::Wait(None) };
            assert_eq!(next(&situation, NOW.0), expected, "{status}");
        }
        let mut done = situation(None);
        done.task.rounds_completed = done.task.spec.rounds.count;
        assert_eq!(next(&done, NOW.0), Next::Wait(None));
    }

    /// A buffer of three.
    fn ahead(ready: u32, grantable: u32, lapse: Option<i64>) -> Situation {
        let mut situation = situation(None);
        let spec = &mut situation.task.spec;
        spec.schedule = serde_json::from_value(serde_json::json!({ "mode": "buffered" })).unwrap();
        spec.rounds.select_min = Some(3);
        let lapse = lapse.map(Timestamp);
        situation.ahead = Some(AheadStatus { ready, grantable, lapse, last_opened: NOW });
        situation
    }

    #[test]
    fn a_buffer_opens_its_round_when_it_is_full() {
        assert_eq!(next(&ahead(2, 0, None), NOW.0), Next::Wait(None));
        assert_eq!(next(&ahead(2, 0, Some(7)), NOW.0), Next::Wait(Some(Timestamp(7))), "then a place is free again");
        assert_eq!(next(&ahead(3, 0, Some(7)), NOW.0), Next::Do(Step::OpenRound));
        assert_eq!(next(&ahead(3, 1, None), NOW.0), Next::Do(Step::Grant), "nobody waits for nothing");
        let mut failed = ahead(3, 0, None);
        failed.failures = Some(Failures { count: 1, last_at: NOW });
        assert_eq!(next(&failed, NOW.0), Next::Wait(Some(Timestamp(NOW.0 + 1000))), "not at once again");
    }

    #[test]
    fn a_period_opens_its_round_when_it_is_over() {
        let mut semi = ahead(3, 0, None);
        let schedule = serde_json::json!({ "mode": "semi_sync", "period_ms": 5000 });
        semi.task.spec.schedule = serde_json::from_value(schedule).unwrap();
        assert_eq!(next(&semi, NOW.0 + 4999), Next::Wait(Some(Timestamp(NOW.0 + 5000))));
        assert_eq!(next(&semi, NOW.0 + 5000), Next::Do(Step::OpenRound));
    }

    #[test]
    fn inputs_are_folded_by_number_or_by_bytes() {
        let mut collecting = situation(Some(round(RoundState::Collecting, 1)));
        for (unfolded, folds) in [(0, false), (1, false), (31, false), (32, true)] {
            collecting.unfolded = unfolded;
            assert_eq!(next(&collecting, NOW.0) == Next::Do(Step::SumChunk), folds, "{unfolded} of 1 MiB");
        }
        for (unfolded, folds) in [(63, false), (64, true)] {
            collecting.unfolded = unfolded;
            let next = plan(&collecting, inputs(1), &WorkConfig::default(), NOW);
            assert_eq!(next == Next::Do(Step::SumChunk), folds, "{unfolded} of 1 byte");
        }
        assert_eq!(chunk(inputs(1), &WorkConfig::default()), 1024);
        assert_eq!(chunk(inputs(u64::MAX), &WorkConfig { fold_inputs: 0, ..WorkConfig::default() }), 1);
        assert_eq!(chunk(InputSize { at_once: 8, ..inputs(1) }, &WorkConfig::default()), 8);
    }

    #[test]
    fn inputs_of_a_robust_rule_are_kept_side_by_side() {
        for state in [RoundState::Collecting, RoundState::Aggregating] {
            let mut situation = situation(Some(round(state, 1)));
            let robust = serde_json::json!({ "rule": "median", "attackers": 0.2 });
            situation.task.spec.aggregation.robust = Some(serde_json::from_value(robust).unwrap());
            situation.unfolded = 1000;
            assert_eq!(next(&situation, NOW.0) == Next::Do(Step::ReleaseSum), state == RoundState::Aggregating);
            assert_ne!(next(&situation, NOW.0), Next::Do(Step::SumChunk));
        }
    }

    #[test]
    fn aggregation_folds_then_releases_then_publishes() {
        let mut aggregating = situation(Some(round(RoundState::Aggregating, 1)));
        aggregating.unfolded = 65;
        assert_eq!(next(&aggregating, NOW.0), Next::Do(Step::SumChunk));
        aggregating.unfolded = 64;
        assert_eq!(next(&aggregating, NOW.0), Next::Do(Step::ReleaseSum));
        aggregating.released = true;
        assert_eq!(next(&aggregating, NOW.0), Next::Do(Step::PublishVersion));
        assert_eq!(next(&aggregating, NOW.0 + 600_000), Next::Do(Step::ClosePhase), "its deadline comes first");
    }
}
