//! Tasks whose terms this participant currently refuses. Check-ins report them, so the coordinator offers other tasks at once.

use std::time::Duration;

use wire::TaskId;
use wire::participant::{MAX_FINDINGS, RefusalCode, TaskRefusal};

/// Time for which check-ins report a refusal that is caused by the app's own limits.
const SETTLED: Duration = Duration::from_secs(600);

/// The refused tasks, in the order of their latest refusals.
#[derive(Default)]
pub(in crate::participant) struct RefusedTasks(Vec<RefusedTask>);

struct RefusedTask {
    refusal: TaskRefusal,
    /// Number of refusals since the task entered this list.
    times: u32,
    /// Time on the monotonic clock until which check-ins report the refusal.
    until: Duration,
}

/// Whether the app's own limits are the reason, so that the same terms are refused again.
pub(in crate::participant) fn is_settled(reason: RefusalCode) -> bool {
    match reason {
        RefusalCode::Policy | RefusalCode::Privacy | RefusalCode::TooLarge => true,
        RefusalCode::Protocol
        | RefusalCode::Given
        | RefusalCode::Keys
        | RefusalCode::Assignment
        | RefusalCode::Model
        | RefusalCode::Provenance
        | RefusalCode::App
        | RefusalCode::NotTaken => false,
    }
}

impl RefusedTasks {
    /// Whether check-ins at `now` report the task.
    pub(in crate::participant) fn has(&self, task: TaskId, now: Duration) -> bool {
        self.0.iter().any(|refused| refused.refusal.task == task && now < refused.until)
    }

    /// Records a refusal to report: for [`SETTLED`] if the app's own limits are the reason, otherwise for the `pause` that belongs to
    /// the number of refusals.
    pub(in crate::participant) fn note(
        &mut self,
        refusal: TaskRefusal,
        now: Duration,
        pause: impl FnOnce(u32) -> Duration,
    ) {
        let before = self.0.iter().position(|refused| refused.refusal.task == refusal.task);
        let times = before.map_or(0, |index| self.0.remove(index).times).saturating_add(1);
        let until = now.saturating_add(if is_settled(refusal.reason) { SETTLED } else { pause(times) });
        if self.0.len() >= MAX_FINDINGS {
            self.0.remove(0);
        }
        self.0.push(RefusedTask { refusal, times, until });
    }

    /// Forgets a task that this participant takes part in.
    pub(in crate::participant) fn forget(&mut self, task: TaskId) {
        self.0.retain(|refused| refused.refusal.task != task);
    }

    /// The refusals that a check-in at `now` reports.
    pub(in crate::participant) fn report(&self, now: Duration) -> Vec<TaskRefusal> {
        self.0.iter().filter(|refused| now < refused.until).map(|refused| refused.refusal).collect()
    }

    /// Time until the first reported refusal ends; `None` without reported refusals.
    pub(in crate::participant) fn first_end(&self, now: Duration) -> Option<Duration> {
        self.0.iter().filter_map(|refused| refused.until.checked_sub(now)).filter(|left| !left.is_zero()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(n: u128, reason: RefusalCode) -> TaskRefusal {
        TaskRefusal { task: format!("00000000-0000-4000-8000-{n:012}").parse().unwrap(), reason }
    }

    #[test]
    fn refusals_are_reported_until_they_end() {
        let (mut refused, at) = (RefusedTasks::default(), Duration::from_secs);
        let (policy, keys) = (refusal(1, RefusalCode::Policy), refusal(2, RefusalCode::Keys));
        refused.note(policy, at(10), |_| panic!("it does not depend on how often"));
        refused.note(keys, at(10), |times| at(times.into()));
        assert_eq!((refused.report(at(10)), refused.first_end(at(10))), (vec![policy, keys], Some(at(1))));
        assert!(refused.has(keys.task, at(10)) && !refused.has(keys.task, at(11)));
        assert_eq!((refused.report(at(11)), refused.first_end(at(11))), (vec![policy], Some(at(599))));
        refused.note(keys, at(11), |times| at(times.into()));
        assert_eq!((refused.report(at(12)).len(), refused.report(at(13)).len()), (2, 1), "ever longer");
        refused.forget(policy.task);
        assert_eq!((refused.report(at(13)), refused.first_end(at(13))), (vec![], None));
    }

    #[test]
    fn no_more_are_reported_than_a_check_in_may_have() {
        let mut refused = RefusedTasks::default();
        for n in 0..40 {
            refused.note(refusal(n, RefusalCode::Policy), Duration::ZERO, |_| Duration::ZERO);
        }
        let report = refused.report(Duration::ZERO);
        assert_eq!((report.len(), report[0]), (MAX_FINDINGS, refusal(8, RefusalCode::Policy)));
    }
}
