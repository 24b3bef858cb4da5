//! The jobs of an engine: running jobs, their order, and the back-off of failed ones.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use federation::id::TaskId;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::work::StepError;

/// First wait after a step failed; doubles up to [`BACK_OFF_MAX`].
const BACK_OFF_FIRST: Duration = Duration::from_millis(100);
/// Short enough to notice deadlines while storage is unavailable.
const BACK_OFF_MAX: Duration = Duration::from_secs(5);

/// When a failed job may be retried.
struct BackOff {
    until: Instant,
    delay: Duration,
}

/// A unit of work with its own retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Job {
    TaskSurvey,
    Garbage,
    Task(TaskId),
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TaskSurvey => f.write_str("survey"),
            Self::Garbage => f.write_str("garbage"),
            Self::Task(task) => write!(f, "task {task}"),
        }
    }
}

/// The running jobs, and the back-off of failed ones.
#[derive(Default)]
pub(super) struct Workers {
    running: JoinSet<Result<(), StepError>>,
    jobs: HashMap<tokio::task::Id, Job>,
    /// The task started last.
    last: Option<TaskId>,
    back_off: HashMap<Job, BackOff>,
}

impl Workers {
    /// Number of tasks being processed.
    pub(super) fn tasks(&self) -> usize {
        self.jobs.values().filter(|job| matches!(job, Job::Task(_))).count()
    }

    /// Orders the tasks by id, starting after the last started task. With more tasks than workers, each gets its turn, even if others are
    /// always ready.
    pub(super) fn in_turn(&self, mut tasks: Vec<TaskId>) -> Vec<TaskId> {
        tasks.sort_unstable();
        let next = tasks.partition_point(|task| Some(*task) <= self.last);
        tasks.rotate_left(next);
        tasks
    }

    /// Starts the job unless it is running or failed recently.
    pub(super) fn start(&mut self, job: Job, work: impl Future<Output = Result<(), StepError>> + Send + 'static) {
        let waits = self.back_off.get(&job).is_some_and(|back_off| Instant::now() < back_off.until);
        if !waits && !self.jobs.values().any(|running| *running == job) {
            if let Job::Task(task) = job {
                self.last = Some(task);
            }
            self.jobs.insert(self.running.spawn(work).id(), job);
        }
    }

    /// Time until the first failed job may be retried.
    pub(super) fn retry_in(&self) -> Option<Duration> {
        let now = Instant::now();
        self.back_off.values().filter_map(|back_off| back_off.until.checked_duration_since(now)).min()
    }

    /// Waits until a job ends, and records its result; returns false at once without jobs.
    pub(super) async fn finish_one(&mut self) -> bool {
        let Some(done) = self.running.join_next_with_id().await else { return false };
        let (id, result) = match done {
            Ok(done) => done,
            Err(error) => (error.id(), Err(StepError::Thread(error))),
        };
        if let Some(job) = self.jobs.remove(&id) {
            match result {
                Ok(()) => self.succeeded(job),
                Err(error) => self.failed(job, &error),
            }
        }
        true
    }

    /// Ends the back-off of a job.
    pub(super) fn succeeded(&mut self, job: Job) {
        if self.back_off.remove(&job).is_some() {
            tracing::info!(%job, "background work goes on");
        }
    }

    /// Pauses the job. Logs an error once until it succeeds, except for a lost lease and for a wrong clock, which is logged elsewhere.
    pub(super) fn failed(&mut self, job: Job, error: &StepError) {
        let previous = self.back_off.get(&job).map(|back_off| back_off.delay);
        let delay = previous.map_or(BACK_OFF_FIRST, |delay| (delay * 2).min(BACK_OFF_MAX));
        if previous.is_some() || matches!(error, StepError::LeaseLost(_) | StepError::ClockOff) {
            tracing::debug!(%job, %error, ?delay, "background work failed again");
        } else {
            let cause = std::error::Error::source(error).map(tracing::field::display);
            tracing::error!(%job, %error, cause, "background work failed and will be tried again");
        }
        self.back_off.insert(job, BackOff { until: Instant::now() + delay, delay });
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// Two workers, and tasks that are always ready.
    #[tokio::test]
    async fn every_task_has_its_turn_though_others_can_always_go_on() {
        let all: Vec<_> = (0..5).map(|n| TaskId(Uuid::from_u128(n))).collect();
        let mut workers = Workers::default();
        let mut started = HashMap::new();
        for _ in 0..10 {
            for task in workers.in_turn(all.clone()) {
                if workers.tasks() < 2 {
                    workers.start(Job::Task(task), async { Ok(()) });
                    *started.entry(task).or_insert(0) += 1;
                }
            }
            while workers.finish_one().await {}
        }
        assert_eq!(started.len(), 5);
        assert!(started.values().all(|times| *times == 4), "{started:?}");
    }
}
