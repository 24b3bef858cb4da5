//! Training runs on as many threads as there are cores while the simulation continues; the world waits for a result
//! only at the virtual time at which the device has it, and the result needed first is computed first. A result is a
//! function of its inputs, so threads cannot change it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::SimulationError;
use crate::clock::Moment;

/// Training threads. They end with the pool, after finishing what they have begun.
///
/// A general thread pool would not do: it lacks an order of urgency, and its idle threads look for work where the world
/// needs the core.
pub(crate) struct TrainingPool {
    waiting: Arc<TaskQueue>,
    threads: Vec<JoinHandle<()>>,
}

/// Tasks that are still waiting for a thread.
#[derive(Default)]
struct TaskQueue {
    work: Mutex<QueuedTasks>,
    changed: Condvar,
}

/// Ordered by the moment at which a result is needed, then by submission.
#[derive(Default)]
struct QueuedTasks {
    by_urgency: BTreeMap<(Moment, u64), Box<dyn FnOnce() + Send>>,
    started: u64,
    is_over: bool,
}

/// A computation in progress.
pub(crate) struct TrainingHandle<T>(Receiver<T>);

impl TrainingPool {
    /// A pool of this number of threads, at least one.
    pub(crate) fn new(threads: usize) -> Result<Self, SimulationError> {
        let mut pool = Self { waiting: Arc::default(), threads: Vec::with_capacity(threads) };
        for number in 0..threads.max(1) {
            let waiting = Arc::clone(&pool.waiting);
            let thread = Builder::new().name(format!("training-{number}")).spawn(move || waiting.work_off());
            pool.threads.push(thread.map_err(|error| SimulationError::Threads(error.to_string()))?);
        }
        Ok(pool)
    }

    /// Starts a computation whose result is needed at the moment `at`.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        at: Moment,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> TrainingHandle<T> {
        let (sender, receiver) = channel();
        let work = move || {
            // The receiver may be gone. After a panic the channel closes, which the receiver notices.
            if let Ok(result) = catch_unwind(AssertUnwindSafe(work)) {
                let _ = sender.send(result);
            }
        };
        let mut waiting = self.waiting.lock();
        waiting.started += 1;
        let number = waiting.started;
        waiting.by_urgency.insert((at, number), Box::new(work));
        drop(waiting);
        self.waiting.changed.notify_one();
        TrainingHandle(receiver)
    }
}

impl Drop for TrainingPool {
    fn drop(&mut self) {
        self.waiting.lock().is_over = true;
        self.waiting.changed.notify_all();
        for thread in self.threads.drain(..) {
            // Its work cannot panic: see `start`.
            let _ = thread.join();
        }
    }
}

impl TaskQueue {
    fn lock(&self) -> MutexGuard<'_, QueuedTasks> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the most urgent computations until the pool ends.
    fn work_off(&self) {
        let idle = |work: &mut QueuedTasks| work.by_urgency.is_empty() && !work.is_over;
        loop {
            let mut work = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
            if work.is_over {
                return;
            }
            let next = work.by_urgency.pop_first();
            drop(work);
            if let Some((_, next)) = next {
                next();
            }
        }
    }
}

/// Runs a future on this thread.
pub(crate) fn on_a_runtime<T>(future: impl Future<Output = Result<T, SimulationError>>) -> Result<T, SimulationError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| SimulationError::Threads(error.to_string()))?.block_on(future)
}

impl<T> TrainingHandle<T> {
    /// Waits for the result; `None` if the computation panicked.
    pub(crate) fn finish(self) -> Option<T> {
        self.0.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_first_is_computed_first() {
        let pool = TrainingPool::new(1).unwrap();
        let (begin, begun) = channel::<()>();
        let (tell, told) = channel();
        let first = pool.start(Moment(9), move || begun.recv());
        let jobs: Vec<_> = [(5, 'd'), (3, 'b'), (4, 'c'), (3, 'x'), (1, 'a')]
            .map(|(at, name)| {
                let tell = tell.clone();
                pool.start(Moment(at), move || tell.send(name))
            })
            .into();
        begin.send(()).unwrap();
        assert!(jobs.into_iter().all(|job| job.finish().is_some()));
        assert!(first.finish().is_some());
        assert_eq!(told.try_iter().collect::<String>(), "abxcd");
    }

    #[test]
    fn a_panic_is_told_to_whoever_waits_and_ends_nothing_else() {
        let pool = TrainingPool::new(2).unwrap();
        let jobs: Vec<_> = (0..50).map(|n| pool.start(Moment(n), move || assert!(n % 3 != 0))).collect();
        for (n, job) in jobs.into_iter().enumerate() {
            assert_eq!(job.finish().is_some(), n % 3 != 0);
        }
    }

    #[test]
    fn what_has_begun_is_finished_before_the_pool_is_gone() {
        let pool = TrainingPool::new(1).unwrap();
        let ((begin, begun), (tell, told)) = (channel::<()>(), channel());
        let job = pool.start(Moment(1), move || {
            tell.send(()).unwrap();
            begun.recv().is_ok()
        });
        told.recv().unwrap();
        let ended = std::thread::spawn(move || drop(pool));
        begin.send(()).unwrap();
        ended.join().unwrap();
        assert_eq!(job.finish(), Some(true));
    }
}
