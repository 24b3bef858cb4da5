//! The jobs of an engine: which run, whose turn it is, and which have to wait because they failed.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use federation::id::TaskId;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::StepError;

/// First wait after a step failed; doubles up to [`BACK_OFF_MAX`].
const BACK_OFF_FIRST: Duration = Duration::from_millis(100);
/// A deadline must still be noticed while storage is away.
const BACK_OFF_MAX: Duration = Duration::from_secs(5);

/// When a job that failed may be tried again.
struct BackOff {
    until: Instant,
    delay: Duration,
}

/// What may run, fail and be tried again on its own.
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

/// What runs now, and what has to wait because it failed.
#[derive(Default)]
pub(super) struct Workers {
    running: JoinSet<Result<(), StepError>>,
    jobs: HashMap<tokio::task::Id, Job>,
    /// The task that was started last.
    last: Option<TaskId>,
    back_off: HashMap<Job, BackOff>,
}

impl Workers {
    /// How many tasks are worked on now.
    pub(super) fn tasks(&self) -> usize {
        self.jobs.values().filter(|job| matches!(job, Job::Task(_))).count()
    }

    /// The tasks in the order of their ids, from the one after the task that was started last: while there are more of them than
    /// workers, each has its turn, however soon others can go on again.
    pub(super) fn in_turn(&self, mut tasks: Vec<TaskId>) -> Vec<TaskId> {
        tasks.sort_unstable();
        let next = tasks.partition_point(|task| Some(*task) <= self.last);
        tasks.rotate_left(next);
        tasks
    }

    /// Unless it runs already, or failed a moment ago.
    pub(super) fn start(&mut self, job: Job, work: impl Future<Output = Result<(), StepError>> + Send + 'static) {
        let waits = self.back_off.get(&job).is_some_and(|back_off| Instant::now() < back_off.until);
        if !waits && !self.jobs.values().any(|running| *running == job) {
            if let Job::Task(task) = job {
                self.last = Some(task);
            }
            self.jobs.insert(self.running.spawn(work).id(), job);
        }
    }

    /// How long until the first job that failed may be tried again.
    pub(super) fn retry_in(&self) -> Option<Duration> {
        let now = Instant::now();
        self.back_off.values().filter_map(|back_off| back_off.until.checked_duration_since(now)).min()
    }

    /// Waits until a job ends, and notes how; false, at once, if none runs.
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

    /// Ends the pause of a job that had failed.
    pub(super) fn succeeded(&mut self, job: Job) {
        if self.back_off.remove(&job).is_some() {
            tracing::info!(%job, "background work goes on");
        }
    }

    /// Pauses the job. Logged as an error once, until it succeeds; not where another worker was first, or a clock is off, which is
    /// logged where it is found.
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

    /// Two workers, and tasks that can go on again as soon as they were worked on.
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
