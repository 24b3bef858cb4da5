//! Training progress of a round, so that training resumes after a pause or crash.
//!
//! The trainer's calls are numbered. A later run answers completed calls from the log, and passes the saved state to
//! the incomplete one. So a method that trains several models in a round trains each of them once.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use learning::{Adapters, Layout, MetricValue, Parameters, Table};
use wire::Digest;
use zeroize::Zeroizing;

use super::pause::Pause;
use crate::checkpoints::{Checkpoints, Keep, NotKept};
use crate::clock::Clock;
use crate::journal::{Journal, JournalError};
use crate::participant::journal::record::Record;
use crate::participant::journal::snapshot::{self, Call, TrainingId, TrainingRecord};
use crate::trainer::{Cancel, Constraints, Trained, Trainer, TrainerError, TrainingJob};

/// Checkpoints may be this many times as large as a model.
const MODELS: u64 = 4;

/// The environment of a training run. Default: without checkpoints and pauses.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// Writes a record to the journal, and when to; from the thread that trains.
    pub checkpoints: Option<CheckpointWriter>,
    /// How long this run may take, and by which clock: then a trainer that can pauses.
    pub slice: Option<(Arc<dyn Clock>, Duration)>,
}

/// Writes checkpoints to the journal.
#[derive(Clone)]
pub struct CheckpointWriter {
    #[expect(clippy::type_complexity, reason = "a function is a function")]
    pub write: Arc<dyn Fn(&Record) -> Result<(), JournalError> + Send + Sync>,
    pub clock: Arc<dyn Clock>,
    /// Time between two that are written.
    pub every: Duration,
}

/// One that writes to this journal.
pub(in crate::participant) fn checkpoint_writer(
    journal: &Arc<dyn Journal>,
    clock: &Arc<dyn Clock>,
    every: Duration,
) -> CheckpointWriter {
    let (journal, clock) = (Arc::clone(journal), Arc::clone(clock));
    CheckpointWriter { write: Arc::new(move |record| journal.save_parts(&record.name, record.parts())), clock, every }
}

/// The log of one training.
pub(super) struct TrainingLog {
    id: TrainingId,
    seed: u64,
    most_bytes: u64,
    /// Whether results of trainings are kept: where there are several.
    keeps_results: bool,
    cancel: Cancel,
    /// The request that the present run pauses.
    pause: Pause,
    /// The trainer can pause.
    pauses: AtomicBool,
    /// Something was saved of the call under way.
    has_state: AtomicBool,
    /// The run pauses between two trainings, while the trainer is idle.
    is_between: AtomicBool,
    /// The journal may hold a checkpoint.
    is_written: AtomicBool,
    /// The last run has ended, and another has not begun.
    has_ended: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The number of the run under way, or of the last; from 1.
    run: u64,
    is_running: bool,
    writer: Option<CheckpointWriter>,
    slice_end: Option<(Arc<dyn Clock>, Duration)>,
    calls: Vec<Call>,
    /// Bytes of the results that are not kept, since all together would take more than checkpoints may; 0 if all are.
    left_out: u64,
    /// The saved state of the call after these.
    state: Option<Zeroizing<Vec<u8>>>,
    /// The journal does not have this state, or the result of the last training, although the run has a writer.
    is_unwritten: bool,
    /// When the last checkpoint was written, or the first run began: runs may be shorter than the time between two.
    written_at: Duration,
}

impl Inner {
    /// Bytes of the trainings' results in a record, with those that are left out.
    fn bytes_of_results(&self) -> u64 {
        self.calls.iter().map(bytes_of_result).fold(self.left_out, u64::saturating_add)
    }
}

fn bytes_of_result(call: &Call) -> u64 {
    match call {
        Call::Evaluated(_) => 0,
        Call::Trained { values, .. } => 4 * values.len() as u64,
    }
}

impl TrainingLog {
    /// Goes on from `earlier`, if it is of the same training.
    pub(in crate::participant) fn new(
        id: TrainingId,
        seed: u64,
        max_model_bytes: u64,
        keeps_results: bool,
        cancel: Cancel,
        earlier: Option<TrainingRecord>,
    ) -> Self {
        let (is_written, mut inner) = (earlier.is_some(), Inner::default());
        if let Some(TrainingRecord { calls, state, .. }) = earlier {
            (inner.calls, inner.state) = (calls, state);
        }
        Self {
            id,
            seed,
            most_bytes: max_model_bytes.saturating_mul(MODELS),
            keeps_results,
            cancel,
            pause: Pause::default(),
            pauses: AtomicBool::new(false),
            has_state: AtomicBool::new(inner.state.is_some()),
            is_between: AtomicBool::new(false),
            is_written: AtomicBool::new(is_written),
            has_ended: AtomicBool::new(false),
            inner: inner.into(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a run: its number.
    pub(in crate::participant) fn begin(&self, trainer: &dyn Trainer, surroundings: Surroundings) -> u64 {
        self.pauses.store(trainer.pauses(), Ordering::Relaxed);
        let grace = Some(trainer.pause_grace()).filter(|grace| !grace.is_zero());
        let mut inner = self.inner();
        self.pause.begin(surroundings.checkpoints.as_ref().map(|on| Arc::clone(&on.clock)).zip(grace));
        if inner.run == 0 {
            inner.written_at = surroundings.checkpoints.as_ref().map_or(Duration::ZERO, |on| on.clock.now().elapsed);
        }
        inner.run += 1;
        inner.is_running = true;
        inner.left_out = 0;
        self.has_ended.store(false, Ordering::Relaxed);
        self.is_between.store(false, Ordering::Relaxed);
        inner.writer = surroundings.checkpoints;
        inner.slice_end = surroundings.slice.map(|(clock, length)| {
            let end = clock.now().elapsed.saturating_add(length);
            (clock, end)
        });
        inner.run
    }

    /// Ends this run, unless another has begun. Its job can then save no further state.
    fn end(&self, run: u64) {
        let mut inner = self.inner();
        if inner.run != run {
            return;
        }
        self.pause.end();
        inner.is_running = false;
        self.has_ended.store(true, Ordering::Relaxed);
        (inner.writer, inner.slice_end) = (None, None);
    }

    /// Requests a pause of the current run.
    pub(in crate::participant) fn pause(&self) {
        self.pause.tell();
    }

    /// Withdraws the request that the present run pauses.
    pub(in crate::participant) fn go_on(&self) {
        self.pause.take_back();
    }

    /// Whether the training could resume later if the run stopped now, or the run still has time to save the state for
    /// that.
    pub(in crate::participant) fn can_go_on(&self) -> bool {
        self.pauses.load(Ordering::Relaxed) || self.has_state() || self.pause.has_time()
    }

    /// Whether the present run may pause, so that conditions are checked while it lasts.
    pub(in crate::participant) fn may_pause(&self) -> bool {
        self.pauses.load(Ordering::Relaxed) || self.has_state() || self.pause.has_grace()
    }

    /// Whether a run has ended and its result is about to arrive.
    pub(in crate::participant) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Whether the last run used up its time without saving.
    pub(in crate::participant) fn ran_out(&self) -> bool {
        self.pause.ran_out()
    }

    /// Whether a run that ends now can go on later: something was saved of the call under way, or it pauses between two.
    pub(in crate::participant) fn has_state(&self) -> bool {
        self.has_state.load(Ordering::Relaxed) || self.is_between.load(Ordering::Relaxed)
    }

    /// Whether the journal may hold a checkpoint.
    pub(in crate::participant) fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Relaxed)
    }

    /// Waits for a checkpoint that is being written; after [`Cancel::cancel`] it is the last one.
    pub(in crate::participant) fn settle(&self) {
        drop(self.inner());
    }

    fn returned(&self, number: usize) -> Option<Call> {
        self.inner().calls.get(number).cloned()
    }

    /// Stores the result of the next call. A task may request any number of trainings. From the first result too large
    /// for the checkpoints on, results are dropped, and the run cannot be resumed.
    fn note(&self, number: usize, call: Call) {
        let mut inner = self.inner();
        let is_full = inner.left_out > 0;
        if !is_full && inner.calls.len() != number {
            return;
        }
        let bytes = bytes_of_result(&call);
        if !is_full && inner.bytes_of_results().saturating_add(bytes) <= self.most_bytes {
            inner.is_unwritten |= matches!(call, Call::Trained { .. }) && inner.writer.is_some();
            inner.calls.push(call);
        } else {
            inner.left_out = inner.left_out.saturating_add(bytes);
        }
        inner.state = None;
        self.has_state.store(false, Ordering::Relaxed);
        self.pause.anew();
    }

    /// Whether the run must pause before its next training: a pause was requested, a training has returned, and all
    /// results are kept, so a pause preserves them.
    fn pauses_between(&self) -> bool {
        let loses_nothing = {
            let inner = self.inner();
            inner.left_out == 0 && inner.calls.iter().any(|call| matches!(call, Call::Trained { .. }))
        };
        let pauses = loses_nothing && self.pause.is_told();
        self.is_between.store(pauses, Ordering::Relaxed);
        pauses
    }

    fn save(&self, run: u64, number: usize, state: &[u8], at_once: bool) -> Result<(), NotKept> {
        let mut inner = self.inner();
        let is_of_next_call = inner.left_out > 0 || inner.calls.len() == number;
        if !inner.is_running || inner.run != run || !is_of_next_call || self.cancel.is_cancelled() {
            return Err(NotKept::Over);
        }
        let (bytes, limit) = (inner.bytes_of_results().saturating_add(state.len() as u64), self.most_bytes);
        if bytes > limit {
            return Err(NotKept::TooLarge { bytes, limit });
        }
        // Read once: an unwritten state must not satisfy a pause request that arrives later.
        let is_told = self.pause.is_told();
        let mut is_unwritten = false;
        if let Some(writer) = inner.writer.clone() {
            let now = writer.clock.now().elapsed;
            is_unwritten = !at_once && !is_told && now.saturating_sub(inner.written_at) < writer.every;
            if !is_unwritten {
                let record = TrainingRecord::encode(self.id, self.seed, &inner.calls, Some(state))?;
                self.is_written.store(true, Ordering::Relaxed);
                (writer.write)(&Record::new(snapshot::TRAINING.to_owned(), record))?;
                inner.written_at = writer.clock.now().elapsed;
            }
        }
        (inner.state, inner.is_unwritten) = (Some(Zeroizing::new(state.to_vec())), is_unwritten);
        self.has_state.store(true, Ordering::Relaxed);
        if is_told {
            self.pause.saved();
        }
        Ok(())
    }

    /// The record of the last saved or returned result, if the journal lacks it and the run has ended. Returned once.
    pub(in crate::participant) fn unwritten(&self) -> Result<Option<Record>, JournalError> {
        // A run under way writes by itself, and its lock may wait for the disk.
        if !self.has_ended() {
            return Ok(None);
        }
        let mut inner = self.inner();
        if !inner.is_unwritten || inner.bytes_of_results() > self.most_bytes {
            return Ok(None);
        }
        let state = inner.state.as_deref().map(Vec::as_slice);
        let record = TrainingRecord::encode(self.id, self.seed, &inner.calls, state)?;
        inner.is_unwritten = false;
        self.is_written.store(true, Ordering::Relaxed);
        Ok(Some(Record::new(snapshot::TRAINING.to_owned(), record)))
    }
}

/// The checkpoints of the call under way, for the trainer.
struct OfRun {
    log: Arc<TrainingLog>,
    run: u64,
    /// Of the call.
    number: usize,
}

impl Keep for OfRun {
    fn load(&self) -> Option<Zeroizing<Vec<u8>>> {
        let inner = self.log.inner();
        inner.state.clone().filter(|_| inner.calls.len() == self.number)
    }

    fn has_state(&self) -> bool {
        let inner = self.log.inner();
        inner.state.is_some() && inner.calls.len() == self.number
    }

    fn save(&self, state: &[u8], at_once: bool) -> Result<(), NotKept> {
        self.log.save(self.run, self.number, state, at_once)
    }

    fn is_due(&self) -> bool {
        let inner = self.log.inner();
        let is_due =
            |writer: &CheckpointWriter| writer.clock.now().elapsed.saturating_sub(inner.written_at) >= writer.every;
        inner.writer.as_ref().is_some_and(is_due)
    }

    fn should_pause(&self) -> bool {
        let is_over = |(clock, end): &(Arc<dyn Clock>, Duration)| clock.now().elapsed >= *end;
        self.log.pause.is_heard() || self.log.inner().slice_end.as_ref().is_some_and(is_over)
    }

    fn must_pause(&self) -> bool {
        self.log.pause.is_due()
    }
}

/// A trainer whose calls are in the log. Dropping it ends the run.
pub(super) struct Logged<'a> {
    trainer: &'a mut dyn Trainer,
    log: &'a Arc<TrainingLog>,
    run: u64,
    /// Number of the next call.
    next: usize,
}

impl<'a> Logged<'a> {
    pub(in crate::participant) fn new(trainer: &'a mut dyn Trainer, log: &'a Arc<TrainingLog>, run: u64) -> Self {
        Self { trainer, log, run, next: 0 }
    }

    fn trained(
        &mut self,
        layout: &Arc<Layout>,
        job: &TrainingJob,
        train: impl FnOnce(&mut dyn Trainer, &TrainingJob) -> Result<Trained, TrainerError>,
    ) -> Result<Trained, TrainerError> {
        let number = self.next;
        self.next += 1;
        if let Some(Call::Trained { values, examples, metrics }) = self.log.returned(number)
            && let Ok(parameters) = Parameters::new(Arc::clone(layout), values.to_vec())
        {
            return Ok(Trained { parameters, examples, metrics });
        }
        if self.log.pauses_between() {
            return Err(TrainerError::Paused);
        }
        let job = self.with_checkpoints(job, number);
        let trained = train(self.trainer, &job)?;
        if self.log.keeps_results {
            let Trained { parameters, examples, metrics } = &trained;
            let values = Zeroizing::new(parameters.values().to_vec());
            self.log.note(number, Call::Trained { values, examples: *examples, metrics: metrics.clone() });
        }
        Ok(trained)
    }

    /// A job for the call of this number, with the checkpoints of that.
    fn with_checkpoints(&self, job: &TrainingJob, number: usize) -> TrainingJob {
        let checkpoints = Checkpoints::new(Arc::new(OfRun { log: Arc::clone(self.log), run: self.run, number }));
        TrainingJob { checkpoints, ..job.clone() }
    }
}

impl Drop for Logged<'_> {
    fn drop(&mut self) {
        self.log.end(self.run);
    }
}

impl Trainer for Logged<'_> {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        self.trained(model.layout(), job, |trainer, job| trainer.train(model, job))
    }

    fn train_within(
        &mut self,
        model: &Parameters,
        job: &TrainingJob,
        constraints: Constraints<'_>,
    ) -> Result<Trained, TrainerError> {
        self.trained(model.layout(), job, |trainer, job| trainer.train_within(model, job, constraints))
    }

    fn train_adapters(
        &mut self,
        base: &Parameters,
        start: &Parameters,
        job: &TrainingJob,
        adapters: &Adapters,
    ) -> Result<Trained, TrainerError> {
        self.trained(start.layout(), job, |trainer, job| trainer.train_adapters(base, start, job, adapters))
    }

    fn base_model(&mut self, job: &TrainingJob) -> Result<Parameters, TrainerError> {
        self.trainer.base_model(job)
    }

    fn evaluate(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        let number = self.next;
        self.next += 1;
        if let Some(Call::Evaluated(metrics)) = self.log.returned(number) {
            return Ok(metrics);
        }
        let metrics = self.trainer.evaluate(model, job)?;
        self.log.note(number, Call::Evaluated(metrics.clone()));
        Ok(metrics)
    }

    fn table(&mut self, job: &TrainingJob) -> Result<Cow<'_, Table>, TrainerError> {
        let job = self.with_checkpoints(job, self.next);
        self.next += 1;
        self.trainer.table(&job)
    }

    fn predictions(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Table, TrainerError> {
        let job = self.with_checkpoints(job, self.next);
        self.next += 1;
        self.trainer.predictions(model, &job)
    }

    fn examples(&self) -> u64 {
        self.trainer.examples()
    }

    fn pauses(&self) -> bool {
        self.trainer.pauses()
    }

    fn pause_grace(&self) -> Duration {
        self.trainer.pause_grace()
    }

    fn measures_as_it_trains(&self) -> bool {
        self.trainer.measures_as_it_trains()
    }

    fn record_below(&mut self) -> Option<Digest> {
        self.trainer.record_below()
    }
}

#[cfg(test)]
mod tests;
