//! Training really runs, on as many threads as there are cores, while the world goes on; the world waits for a result only at
//! the virtual time at which the device has it, and what it will wait for first is computed first. A result is a function of its
//! inputs, so threads cannot change it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::SimulationError;
use crate::clock::Moment;

/// Threads that compute.
pub(crate) struct Pool {
    threads: ThreadPool,
    waiting: Arc<Mutex<Waiting>>,
}

/// What no thread has begun, by when it is needed and then as it was asked for.
#[derive(Default)]
struct Waiting {
    work: BTreeMap<(Moment, u64), Box<dyn FnOnce() + Send>>,
    started: u64,
}

/// Something that is being computed.
pub(crate) struct Job<T>(Receiver<T>);

impl Pool {
    /// So many threads, at least one.
    pub(crate) fn new(threads: usize) -> Result<Self, SimulationError> {
        let builder = ThreadPoolBuilder::new().num_threads(threads.max(1)).thread_name(|n| format!("training-{n}"));
        let threads = builder.build().map_err(|error| SimulationError::Threads(error.to_string()))?;
        Ok(Self { threads, waiting: Arc::default() })
    }

    /// Begins to compute what is needed at the moment `at`.
    pub(crate) fn start<T: Send + 'static>(&self, at: Moment, work: impl FnOnce() -> T + Send + 'static) -> Job<T> {
        let (sender, receiver) = channel();
        let work = move || {
            // The world may have lost interest; and one that panics is missed by whoever waits for it.
            if let Ok(result) = catch_unwind(AssertUnwindSafe(work)) {
                let _ = sender.send(result);
            }
        };
        let waiting = Arc::clone(&self.waiting);
        {
            let mut waiting = lock(&waiting);
            waiting.started += 1;
            let number = waiting.started;
            waiting.work.insert((at, number), Box::new(work));
        }
        // As many are spawned as wait, so each finds one: the most urgent.
        self.threads.spawn_fifo(move || {
            let next = lock(&waiting).work.pop_first();
            if let Some((_, work)) = next {
                work();
            }
        });
        Job(receiver)
    }
}

fn lock(waiting: &Mutex<Waiting>) -> std::sync::MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Job<T> {
    /// Waits for the result; none if the computation panicked.
    pub(crate) fn finish(self) -> Option<T> {
        self.0.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_first_is_computed_first() {
        let pool = Pool::new(1).unwrap();
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
}
