//! Queues of all models and the threads that compute: a thread that reads requests, for quick batches, or a dedicated
//! thread. `inference::batcher` forms the batches.

mod compute;
mod pending_request;
mod queues;

use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use inference::Moment;
use inference::batcher::{Batcher, Batching};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::Instant;

use super::input::Input;
use super::meters::QueueMeters;
use pending_request::{Answer, PendingRequest};
pub(crate) use pending_request::{Compared, ModelPair, NoAnswer};
use queues::{Queue, Queues, Shared};

/// The queues and their threads. Dropping it stops the threads and drops pending requests.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    limits: Batching,
    threads: Vec<JoinHandle<()>>,
}

/// A request that is being read.
pub(crate) struct Arriving<'a> {
    engine: &'a Engine,
    model: usize,
    /// `None` after the request has arrived.
    number: Option<u64>,
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut queues = self.engine.shared.lock();
        let batcher = &mut queues.all[self.model].batcher;
        batcher.arrived(number);
        // Requests that waited for this one may be ready now.
        let is_wanted = batcher.waiting() > 0 && queues.wake();
        drop(queues);
        self.engine.shared.notify(is_wanted);
    }
}

impl Engine {
    /// Starts the threads for models with these names. At most one batch per thread is in progress.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn start(models: &[String], batching: Batching, threads: usize) -> std::io::Result<Self> {
        let threads = threads.max(1);
        let queue = |name: &String| Queue {
            batcher: Batcher::new(batching),
            demand: 0,
            meters: Arc::new(QueueMeters::of(name)),
        };
        let queues = Queues::new(models.iter().map(queue).collect(), threads);
        let limits = Batcher::<ModelPair, PendingRequest>::new(batching).limits();
        let shared = Arc::new(Shared { queues: Mutex::new(queues), changed: Condvar::new(), began: Instant::now() });
        let start = |number: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("compute-{number}")).spawn(move || shared.work())
        };
        let threads = (0..threads).map(start).collect::<Result<_, _>>()?;
        Ok(Self { shared, limits, threads })
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Moment {
        self.shared.began.elapsed()
    }

    /// Registers a request for this model that is being read. `is_to_wait`: it will need a place in the queue.
    ///
    /// # Errors
    /// [`inference::batcher::Refused::Full`]: the queue has no place for it.
    pub(crate) fn arriving(&self, model: usize, is_to_wait: bool) -> Result<Arriving<'_>, NoAnswer> {
        let now = self.now();
        let mut queues = self.shared.lock();
        let queue = &mut queues.all[model];
        if is_to_wait && let Err(full) = queue.batcher.room(1, PendingRequest::is_gone) {
            queue.note_demand(1);
            return Err(full.into());
        }
        let number = Some(queue.batcher.arrives(now));
        Ok(Arriving { engine: self, model, number })
    }

    /// Computes an answer. Dropping the future drops the pending parts. `arriving`: the registration of the request, if
    /// reading it took time.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub(crate) async fn ask(
        &self,
        model: usize,
        arriving: Option<Arriving<'_>>,
        target: &ModelPair,
        input: Input,
    ) -> Answer {
        // A request with many parts would block the thread for as many batches.
        let is_quick = input.examples() <= self.limits.max_batch && target.is_quick();
        let (mut first, others) = self.queue(model, arriving, target, input, is_quick)?;
        if is_quick && let Some(answer) = self.attend(model, &mut first).await {
            return answer;
        }
        // The engine drops pending requests when it stops; no caller waits then.
        let mut all = first.await.unwrap_or(Err(NoAnswer::Panicked))?;
        for answer in others {
            all.extend(answer.await.unwrap_or(Err(NoAnswer::Panicked))?);
        }
        Ok(all)
    }

    /// Computes queued work of a model until this request is answered. Returns `None` if the work was left to the
    /// threads.
    async fn attend(&self, model: usize, first: &mut oneshot::Receiver<Answer>) -> Option<Answer> {
        let mut attending = Attending(Some(&self.shared));
        let answer = loop {
            // Reads other available requests first, so that one thread computes them together.
            tokio::task::yield_now().await;
            let answer = answered(first);
            if answer.is_some() || !self.shared.help(model) {
                break answer;
            }
            let answer = answered(first);
            if answer.is_some() {
                break answer;
            }
        };
        attending.0 = None;
        answer
    }

    /// Queues a request. Returns the receivers of its first part and of the others. `is_attended`: the caller ensures
    /// that the request is computed.
    fn queue(
        &self,
        model: usize,
        arriving: Option<Arriving<'_>>,
        target: &ModelPair,
        input: Input,
        is_attended: bool,
    ) -> Result<(oneshot::Receiver<Answer>, Vec<oneshot::Receiver<Answer>>), NoAnswer> {
        let target = &ModelPair { length: input.length(), ..target.clone() };
        let examples = input.examples();
        let mut ranges = self.limits.parts(examples)?;
        let (answer, first) = oneshot::channel();
        let (mut parts, mut others) = (Vec::with_capacity(1), Vec::new());
        // Nearly every request has one part.
        if examples <= self.limits.max_batch {
            parts.push((examples, PendingRequest { input, answer }));
        } else {
            let range = ranges.next().unwrap_or_default();
            parts.push((range.len(), PendingRequest { input: input.part(range), answer }));
            for range in ranges {
                let (answer, receiver) = oneshot::channel();
                parts.push((range.len(), PendingRequest { input: input.part(range), answer }));
                others.push(receiver);
            }
        }
        let (count, now) = (parts.len(), self.now());
        let mut queues = self.shared.lock();
        if queues.is_stopping {
            return Err(NoAnswer::ShuttingDown);
        }
        let queue = &mut queues.all[model];
        let offered = queue.batcher.offer(now, target, parts.into_iter(), PendingRequest::is_gone);
        queue.note_demand(if offered.is_err() { count } else { 0 });
        offered?;
        if let Some(mut arriving) = arriving
            && let Some(number) = arriving.number.take()
        {
            queue.batcher.arrived(number);
        }
        let is_wanted = !is_attended && queues.wake();
        drop(queues);
        self.shared.notify(is_wanted);
        Ok((first, others))
    }

    /// Number of pending requests of a model.
    pub(crate) fn waiting(&self, model: usize) -> usize {
        self.shared.lock().all[model].batcher.waiting()
    }

    /// Maximum number of pending requests of a model since the last call, including rejected ones.
    pub(crate) fn take_demand(&self) -> usize {
        let mut queues = self.shared.lock();
        queues
            .all
            .iter_mut()
            .map(|queue| std::mem::replace(&mut queue.demand, queue.batcher.waiting()))
            .max()
            .unwrap_or(0)
    }
}

/// A caller that computes its own request. If it is cancelled, the pending work is left to the threads.
struct Attending<'a>(Option<&'a Shared>);

impl Drop for Attending<'_> {
    fn drop(&mut self) {
        let Some(shared) = self.0 else { return };
        let is_wanted = shared.lock().wake();
        shared.notify(is_wanted);
    }
}

/// The answer, if it has arrived.
fn answered(answer: &mut oneshot::Receiver<Answer>) -> Option<Answer> {
    match answer.try_recv() {
        Ok(answer) => Some(answer),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Closed) => Some(Err(NoAnswer::Panicked)),
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
