//! The queues of all models, and the threads that compute: one per core. `inference::batcher` says what makes a batch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use client_sdk::train::TrainError;
use inference::Moment;
use inference::batcher::{Batch, Batcher, Batching, Next, Part, Refused};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::meters;
use super::model::{Input, Loaded, Prediction, joined};

/// Who is told what the canary and the stable version said of the same examples, as classes.
pub(crate) type Compared = Arc<dyn Fn(&[u32], &[u32]) + Send + Sync>;

/// What computes a batch.
#[derive(Clone)]
pub(crate) struct Lane {
    pub(crate) model: Arc<Loaded>,
    /// The stable version, if the model is tried beside it.
    pub(crate) beside: Option<(Arc<Loaded>, Compared)>,
}

impl PartialEq for Lane {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.model, &other.model)
    }
}

/// A part of a request that waits for its answer.
struct Asker {
    input: Input,
    answer: oneshot::Sender<Result<Prediction, NoAnswer>>,
}

impl Asker {
    /// Whether nobody waits for the answer any more.
    fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Unfit(#[from] TrainError),
    #[error("computing the answer failed")]
    Panicked,
    #[error("shutting down; try again later")]
    ShuttingDown,
}

impl NoAnswer {
    /// Whether it speaks against the version, which was asked about inputs of its form.
    pub(crate) fn is_of_version(&self) -> bool {
        match self {
            Self::Unfit(_) | Self::Panicked => true,
            Self::Refused(_) | Self::ShuttingDown => false,
        }
    }
}

struct Queue {
    name: String,
    batcher: Batcher<Lane, Asker>,
    /// Most that waited at once since somebody looked, with those for whom there was no room.
    demand: usize,
}

impl Queue {
    /// Notes how many wait, beside those for whom there was no room.
    fn note_demand(&mut self, refused: usize) {
        let waiting = self.batcher.waiting();
        self.demand = self.demand.max(waiting + refused);
        meters::queue_size(&self.name, waiting);
    }
}

#[derive(Default)]
struct Queues {
    all: Vec<Queue>,
    /// Whose turn it is first, so that no model waits for another.
    turn: usize,
    is_stopping: bool,
}

struct Shared {
    queues: Mutex<Queues>,
    changed: Condvar,
    began: Instant,
}

/// The queues and their threads. Dropped, it stops: what waits is not computed.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// A request that is being read.
pub(crate) struct Arriving<'a> {
    engine: &'a Engine,
    model: usize,
    number: u64,
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        let mut queues = self.engine.shared.lock();
        queues.all[self.model].batcher.arrived(self.number);
        self.engine.shared.changed.notify_one();
    }
}

impl Engine {
    /// Starts the threads, for models of these names.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn start(models: &[String], batching: Batching, threads: usize) -> std::io::Result<Self> {
        let queue = |name: &String| Queue { name: name.clone(), batcher: Batcher::new(batching), demand: 0 };
        let queues = Queues { all: models.iter().map(queue).collect(), ..Queues::default() };
        let shared = Arc::new(Shared { queues: Mutex::new(queues), changed: Condvar::new(), began: Instant::now() });
        let start = |number: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("compute-{number}")).spawn(move || shared.work())
        };
        let threads = (0..threads.max(1)).map(start).collect::<Result<_, _>>()?;
        Ok(Self { shared, threads })
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Moment {
        self.shared.began.elapsed()
    }

    /// Whether there is room for one more request for a model.
    ///
    /// # Errors
    /// [`Refused::Full`].
    pub(crate) fn room(&self, model: usize) -> Result<(), NoAnswer> {
        let mut queues = self.shared.lock();
        let queue = &mut queues.all[model];
        let room = queue.batcher.room(1, Asker::is_gone);
        if room.is_err() {
            queue.note_demand(1);
        }
        Ok(room?)
    }

    /// Notes that a request for this model is being read.
    pub(crate) fn arriving(&self, model: usize) -> Arriving<'_> {
        let now = self.now();
        let number = self.shared.lock().all[model].batcher.arrives(now);
        Arriving { engine: self, model, number }
    }

    /// Asks a model. Dropped before it is answered, what of it waits is not computed.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub(crate) async fn ask(&self, arriving: Arriving<'_>, lane: &Lane, input: Input) -> Result<Prediction, NoAnswer> {
        let answers = self.queue(arriving, lane, input)?;
        let mut all = Prediction::default();
        for answer in answers {
            // The engine drops what waits when it ends, and then nobody asks it.
            all.extend(answer.await.unwrap_or(Err(NoAnswer::Panicked))?);
        }
        Ok(all)
    }

    fn queue(
        &self,
        arriving: Arriving<'_>,
        lane: &Lane,
        input: Input,
    ) -> Result<Vec<oneshot::Receiver<Result<Prediction, NoAnswer>>>, NoAnswer> {
        let (examples, now) = (input.examples(), self.now());
        let mut queues = self.shared.lock();
        if queues.is_stopping {
            return Err(NoAnswer::ShuttingDown);
        }
        let queue = &mut queues.all[arriving.model];
        let ranges: Vec<_> = queue.batcher.limits().parts(examples)?.collect();
        let (mut parts, mut answers) = (Vec::with_capacity(ranges.len()), Vec::with_capacity(ranges.len()));
        let mut input = Some(input);
        for range in ranges {
            let (answer, receiver) = oneshot::channel();
            let whole = range == (0..examples);
            // Nearly every request is one part.
            let part = if whole { input.take() } else { input.as_ref().map(|input| input.part(range.clone())) };
            let Some(input) = part else { continue };
            parts.push((range.len(), Asker { input, answer }));
            answers.push(receiver);
        }
        let count = parts.len();
        let offered = queue.batcher.offer(now, lane, parts.into_iter(), Asker::is_gone);
        queue.note_demand(if offered.is_err() { count } else { 0 });
        offered?;
        queue.batcher.arrived(arriving.number);
        drop(queues);
        self.shared.changed.notify_one();
        Ok(answers)
    }

    /// Number of requests for a model that wait.
    pub(crate) fn waiting(&self, model: usize) -> usize {
        self.shared.lock().all[model].batcher.waiting()
    }

    /// Most requests for one model that waited at once since the last look, with those that found no room.
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

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a compute thread does until the engine stops.
    fn work(&self) {
        let mut queues = self.lock();
        while !queues.is_stopping {
            let now = self.began.elapsed();
            match queues.next(now) {
                Found::Batch(model, batch) => {
                    let name = queues.all[model].name.clone();
                    // Whoever offers wakes one thread, however many parts there are.
                    if queues.all.iter().any(|queue| queue.batcher.waiting() > 0) {
                        self.changed.notify_one();
                    }
                    drop(queues);
                    let took = compute(&name, batch, now);
                    queues = self.lock();
                    queues.all[model].batcher.computed(took);
                }
                Found::Wait(Some(until)) => {
                    let waited = self.changed.wait_timeout(queues, until.saturating_sub(now));
                    queues = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Found::Wait(None) => queues = self.changed.wait(queues).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

enum Found {
    Batch(usize, Batch<Lane, Asker>),
    /// Until this moment at most.
    Wait(Option<Moment>),
}

impl Queues {
    /// The next batch, of the models in turn.
    fn next(&mut self, now: Moment) -> Found {
        let (count, mut until) = (self.all.len(), None::<Moment>);
        for step in 0..count {
            let model = (self.turn + step) % count;
            let queue = &mut self.all[model];
            let before = queue.batcher.waiting();
            let next = queue.batcher.next(now, Asker::is_gone);
            // Also where nothing is to be computed, because everybody has gone away.
            if queue.batcher.waiting() != before {
                meters::queue_size(&queue.name, queue.batcher.waiting());
            }
            match next {
                Next::Compute(batch) => {
                    self.turn = model + 1;
                    return Found::Batch(model, batch);
                }
                Next::WaitUntil(at) => until = Some(until.map_or(at, |until| until.min(at))),
                Next::Nothing => {}
            }
        }
        Found::Wait(until)
    }
}

/// Computes a batch and answers its askers; how long that took. Texts of different lengths, and what cannot be computed together, are
/// computed request by request.
fn compute(name: &str, batch: Batch<Lane, Asker>, now: Moment) -> Duration {
    let began = Instant::now();
    let Batch { lane, parts } = batch;
    let examples: usize = parts.iter().map(|part| part.examples).sum();
    for part in &parts {
        meters::queued(name, now.saturating_sub(part.since));
    }
    let together = joined(parts.iter().map(|part| &part.asker.input));
    let together = together.and_then(|input| contained(|| lane.model.compute(&input)).ok().map(|said| (input, said)));
    let said: Vec<(Input, Vec<u32>)> = match together {
        Some((input, all)) => {
            let classes = lane.beside.is_some().then(|| all.classes.clone());
            share(parts, all, examples);
            classes.map(|classes| (input, classes)).into_iter().collect()
        }
        None => parts.into_iter().filter_map(|part| answer_alone(&lane, part.asker)).collect(),
    };
    let took = began.elapsed();
    meters::computed(name, examples, took);
    // After everybody has an answer: nobody waits for the comparison.
    if let Some((stable, tell)) = &lane.beside {
        for (input, classes) in &said {
            let _ = contained(|| stable.compute(input).map(|other| tell(classes, &other.classes)));
        }
    }
    took
}

/// Answers one part by itself: what was asked, and the classes that were said, if they are to be compared.
fn answer_alone(lane: &Lane, Asker { input, answer }: Asker) -> Option<(Input, Vec<u32>)> {
    let said = contained(|| lane.model.compute(&input));
    if matches!(said, Err(NoAnswer::Panicked)) && !lane.model.has_panicked.swap(true, Ordering::Relaxed) {
        let version = lane.model.version;
        tracing::error!(version, "computing with version {version} panicked: who asked is answered 500; told once");
    }
    let classes = said.as_ref().ok().filter(|_| lane.beside.is_some()).map(|said| said.classes.clone());
    let _ = answer.send(said);
    classes.map(|classes| (input, classes))
}

/// Computes, and keeps a panic from the thread, which goes on: what was prepared for it is dropped.
fn contained<T>(work: impl FnOnce() -> Result<T, TrainError>) -> Result<T, NoAnswer> {
    Ok(catch_unwind(AssertUnwindSafe(work)).map_err(|_| NoAnswer::Panicked)??)
}

/// Answers each part with what was said of its examples.
fn share(parts: Vec<Part<Asker>>, all: Prediction, examples: usize) {
    let (scores, classes) = (all.scores.len() / examples.max(1), all.classes.len() / examples.max(1));
    let mut start = 0;
    for Part { examples, asker, .. } in parts {
        let range = start..start + examples;
        let of = |each: usize| range.start * each..range.end * each;
        let mine = Prediction { scores: all.scores[of(scores)].to_vec(), classes: all.classes[of(classes)].to_vec() };
        let _ = asker.answer.send(Ok(mine));
        start += examples;
    }
}

#[cfg(test)]
mod tests;
