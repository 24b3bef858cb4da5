//! Training really runs, on as many threads as there are cores, while the world goes on; the world waits for a result only at
//! the virtual time at which the device has it. A result is a function of its inputs, so threads cannot change it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::SimulationError;

/// Threads that compute.
pub(crate) struct Pool(ThreadPool);

/// Something that is being computed.
pub(crate) struct Job<T>(Receiver<T>);

impl Pool {
    /// So many threads, at least one.
    pub(crate) fn new(threads: usize) -> Result<Self, SimulationError> {
        let builder = ThreadPoolBuilder::new().num_threads(threads.max(1)).thread_name(|n| format!("training-{n}"));
        builder.build().map(Self).map_err(|error| SimulationError::Threads(error.to_string()))
    }

    /// Begins to compute.
    pub(crate) fn start<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Job<T> {
        let (sender, receiver) = channel();
        self.0.spawn_fifo(move || {
            // The world may have lost interest; and one that panics is missed by whoever waits for it.
            if let Ok(result) = catch_unwind(AssertUnwindSafe(work)) {
                let _ = sender.send(result);
            }
        });
        Job(receiver)
    }
}

impl<T> Job<T> {
    /// Waits for the result; none if the computation panicked.
    pub(crate) fn finish(self) -> Option<T> {
        self.0.recv().ok()
    }
}
