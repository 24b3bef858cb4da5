//! The queues of all models, the compute threads and their wake-ups.
//!
//! A sleeping thread is woken when work is left to the threads, unless one has already been notified. A woken thread
//! notifies the next one if it leaves work itself.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use inference::Moment;
use inference::batcher::{Batch, Batcher, Next};
use tokio::time::Instant;

use super::super::meters::QueueMeters;
use super::compute::compute;
use super::pending_request::{ModelPair, PendingRequest};

/// The queue of a model.
pub(super) struct Queue {
    pub(super) batcher: Batcher<ModelPair, PendingRequest>,
    /// Maximum queue length since the last read, including rejected requests.
    pub(super) demand: usize,
    pub(super) meters: Arc<QueueMeters>,
}

impl Queue {
    /// Records the queue length plus rejected requests.
    pub(super) fn note_demand(&mut self, refused: usize) {
        let waiting = self.batcher.waiting();
        self.demand = self.demand.max(waiting + refused);
        self.meters.size(waiting);
    }

    /// The next action of the batcher.
    fn next(&mut self, now: Moment) -> Next<ModelPair, PendingRequest> {
        let before = self.batcher.waiting();
        let next = self.batcher.next(now, PendingRequest::is_gone);
        // Also if nothing is left to compute because all clients have disconnected.
        if self.batcher.waiting() != before {
            self.meters.size(self.batcher.waiting());
        }
        next
    }
}

#[derive(Default)]
pub(super) struct Queues {
    pub(super) all: Vec<Queue>,
    /// The model to serve first, for fairness among models.
    turn: usize,
    /// Batches in progress, and their maximum.
    computing: usize,
    slots: usize,
    /// Work was left to the next thread that finishes a batch.
    is_left: bool,
    /// Number of sleeping threads, which wait for [`Shared::changed`].
    pub(super) sleeping: usize,
    /// One of them has been notified.
    is_woken: bool,
    /// Time at which a sleeping thread wakes up on its own, if any.
    alarm: Option<Moment>,
    pub(super) is_stopping: bool,
}

/// The next step of a thread.
enum NextStep {
    Batch(usize, Batch<ModelPair, PendingRequest>),
    /// Sleep until this time.
    Wait(Option<Moment>),
}

impl Queues {
    /// Queues with at most `slots` batches in progress.
    pub(super) fn new(all: Vec<Queue>, slots: usize) -> Self {
        Self { all, slots, ..Self::default() }
    }

    /// Whether to notify a thread to check the queues now.
    pub(super) fn wake(&mut self) -> bool {
        let is_needed = self.sleeping > 0 && !self.is_woken;
        self.is_woken |= is_needed;
        is_needed
    }

    fn is_waiting(&self) -> bool {
        self.all.iter().any(|queue| queue.batcher.waiting() > 0)
    }

    /// The next batch, with the models in turn.
    fn next(&mut self, now: Moment) -> NextStep {
        if self.computing >= self.slots {
            self.is_left |= self.is_waiting();
            return NextStep::Wait(None);
        }
        let (count, mut until) = (self.all.len(), None::<Moment>);
        for step in 0..count {
            let model = (self.turn + step) % count;
            match self.all[model].next(now) {
                Next::Compute(batch) => {
                    self.turn = model + 1;
                    self.computing += 1;
                    return NextStep::Batch(model, batch);
                }
                Next::WaitUntil(at) => until = Some(until.map_or(at, |until| until.min(at))),
                Next::Nothing => {}
            }
        }
        NextStep::Wait(until)
    }

    /// The next batch of a model, if it is quick and complete. Otherwise leaves the work to the threads and returns
    /// whether to notify one.
    fn next_quick(&mut self, model: usize, now: Moment) -> Result<Batch<ModelPair, PendingRequest>, bool> {
        let queue = &mut self.all[model];
        let Some(target) = queue.batcher.oldest() else { return Err(false) };
        if self.computing >= self.slots {
            self.is_left = true;
            return Err(false);
        }
        if !target.is_quick() {
            return Err(self.wake());
        }
        match queue.next(now) {
            Next::Compute(batch) => {
                self.computing += 1;
                Ok(batch)
            }
            Next::WaitUntil(at) => Err(self.alarm.is_none_or(|alarm| at < alarm) && self.wake()),
            Next::Nothing => Err(false),
        }
    }
}

/// The queues and the condition variable of their threads.
pub(super) struct Shared {
    pub(super) queues: Mutex<Queues>,
    pub(super) changed: Condvar,
    pub(super) began: Instant,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies a thread if [`Queues::wake`] returned true. Call it without the lock, which that thread takes first.
    pub(super) fn notify(&self, is_wanted: bool) {
        if is_wanted {
            self.changed.notify_one();
        }
    }

    /// Computes the next batch of a model on the calling thread, if it is quick, and returns whether it did. Otherwise
    /// leaves the work to the threads.
    pub(super) fn help(&self, model: usize) -> bool {
        let now = self.began.elapsed();
        let mut queues = self.lock();
        let meters = Arc::clone(&queues.all[model].meters);
        let batch = match queues.next_quick(model, now) {
            Ok(batch) => batch,
            Err(is_wanted) => {
                drop(queues);
                self.notify(is_wanted);
                return false;
            }
        };
        drop(queues);
        let took = compute(&meters, batch, now);
        let mut queues = self.lock();
        queues.computing -= 1;
        queues.all[model].batcher.computed(took);
        let is_wanted = std::mem::take(&mut queues.is_left) && queues.wake();
        drop(queues);
        self.notify(is_wanted);
        true
    }

    /// The loop of a compute thread.
    pub(super) fn work(&self) {
        let mut queues = self.lock();
        while !queues.is_stopping {
            let now = self.began.elapsed();
            match queues.next(now) {
                NextStep::Batch(model, batch) => {
                    let meters = Arc::clone(&queues.all[model].meters);
                    let is_wanted = queues.computing < queues.slots && queues.is_waiting() && queues.wake();
                    drop(queues);
                    self.notify(is_wanted);
                    let took = compute(&meters, batch, now);
                    queues = self.lock();
                    queues.computing -= 1;
                    queues.all[model].batcher.computed(took);
                }
                NextStep::Wait(until) => queues = self.sleep(queues, now, until),
            }
        }
    }

    /// Sleeps until this time or a notification.
    fn sleep<'a>(
        &'a self,
        mut queues: MutexGuard<'a, Queues>,
        now: Moment,
        until: Option<Moment>,
    ) -> MutexGuard<'a, Queues> {
        queues.sleeping += 1;
        let mut queues = match until {
            Some(until) => {
                queues.alarm = Some(queues.alarm.map_or(until, |alarm| alarm.min(until)));
                let waited = self.changed.wait_timeout(queues, until.saturating_sub(now));
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.changed.wait(queues).unwrap_or_else(PoisonError::into_inner),
        };
        queues.sleeping -= 1;
        (queues.is_woken, queues.alarm) = (false, None);
        queues
    }
}
