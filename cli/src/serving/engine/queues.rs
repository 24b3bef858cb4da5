//! What waits for each model, the threads that compute it, and what wakes them.
//!
//! A thread that sleeps is woken by whoever leaves something to the threads, and only while none is on its way: that one wakes the next
//! where it leaves anything itself.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use inference::Moment;
use inference::batcher::{Batch, Batcher, Next};
use tokio::time::Instant;

use super::super::meters::QueueMeters;
use super::asker::{Asker, Lane};
use super::compute::compute;

/// What waits for a model.
pub(super) struct Queue {
    pub(super) batcher: Batcher<Lane, Asker>,
    /// Most that waited at once since somebody looked, with those for whom there was no room.
    pub(super) demand: usize,
    pub(super) meters: Arc<QueueMeters>,
}

impl Queue {
    /// Notes how many wait, beside those for whom there was no room.
    pub(super) fn note_demand(&mut self, refused: usize) {
        let waiting = self.batcher.waiting();
        self.demand = self.demand.max(waiting + refused);
        self.meters.size(waiting);
    }

    /// What is to be done now.
    fn next(&mut self, now: Moment) -> Next<Lane, Asker> {
        let before = self.batcher.waiting();
        let next = self.batcher.next(now, Asker::is_gone);
        // Also where nothing is to be computed, because everybody has gone away.
        if self.batcher.waiting() != before {
            self.meters.size(self.batcher.waiting());
        }
        next
    }
}

#[derive(Default)]
pub(super) struct Queues {
    pub(super) all: Vec<Queue>,
    /// Whose turn it is first, so that no model waits for another.
    turn: usize,
    /// Batches that are computed now, and how many may be.
    computing: usize,
    slots: usize,
    /// What waits was left to whoever ends a batch next.
    is_left: bool,
    /// Number of threads that sleep: they wait for [`Shared::changed`].
    pub(super) sleeping: usize,
    /// One of them is on its way.
    is_woken: bool,
    /// When one of them looks by itself; none if that is not known.
    alarm: Option<Moment>,
    pub(super) is_stopping: bool,
}

/// What a thread finds.
enum Found {
    Batch(usize, Batch<Lane, Asker>),
    /// Until this moment at most.
    Wait(Option<Moment>),
}

impl Queues {
    /// Queues of which `slots` batches are computed at a time.
    pub(super) fn new(all: Vec<Queue>, slots: usize) -> Self {
        Self { all, slots, ..Self::default() }
    }

    /// Whether a thread is to be notified, so that one looks at what waits now.
    pub(super) fn wake(&mut self) -> bool {
        let is_needed = self.sleeping > 0 && !self.is_woken;
        self.is_woken |= is_needed;
        is_needed
    }

    fn is_waiting(&self) -> bool {
        self.all.iter().any(|queue| queue.batcher.waiting() > 0)
    }

    /// The next batch, of the models in turn.
    fn next(&mut self, now: Moment) -> Found {
        if self.computing >= self.slots {
            self.is_left |= self.is_waiting();
            return Found::Wait(None);
        }
        let (count, mut until) = (self.all.len(), None::<Moment>);
        for step in 0..count {
            let model = (self.turn + step) % count;
            match self.all[model].next(now) {
                Next::Compute(batch) => {
                    self.turn = model + 1;
                    self.computing += 1;
                    return Found::Batch(model, batch);
                }
                Next::WaitUntil(at) => until = Some(until.map_or(at, |until| until.min(at))),
                Next::Nothing => {}
            }
        }
        Found::Wait(until)
    }

    /// The next batch of a model, if it is quick and there is nothing to wait for. Otherwise what waits is left to the threads, and
    /// whether one is to be notified.
    fn next_quick(&mut self, model: usize, now: Moment) -> Result<Batch<Lane, Asker>, bool> {
        let queue = &mut self.all[model];
        let Some(lane) = queue.batcher.oldest() else { return Err(false) };
        if self.computing >= self.slots {
            self.is_left = true;
            return Err(false);
        }
        if !lane.is_quick() {
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

/// The queues, and what their threads sleep by.
pub(super) struct Shared {
    pub(super) queues: Mutex<Queues>,
    pub(super) changed: Condvar,
    pub(super) began: Instant,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes a thread if [`Queues::wake`] said so. Not under the lock, which that thread takes first.
    pub(super) fn notify(&self, is_wanted: bool) {
        if is_wanted {
            self.changed.notify_one();
        }
    }

    /// Computes the next batch of a model on the calling thread, if it is quick; whether there was one. What waits otherwise is left to
    /// the threads.
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

    /// What a compute thread does until the engine stops.
    pub(super) fn work(&self) {
        let mut queues = self.lock();
        while !queues.is_stopping {
            let now = self.began.elapsed();
            match queues.next(now) {
                Found::Batch(model, batch) => {
                    let meters = Arc::clone(&queues.all[model].meters);
                    let is_wanted = queues.computing < queues.slots && queues.is_waiting() && queues.wake();
                    drop(queues);
                    self.notify(is_wanted);
                    let took = compute(&meters, batch, now);
                    queues = self.lock();
                    queues.computing -= 1;
                    queues.all[model].batcher.computed(took);
                }
                Found::Wait(until) => queues = self.sleep(queues, now, until),
            }
        }
    }

    /// Until this moment at most, or until it is woken.
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
