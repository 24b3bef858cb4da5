//! One model to train.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use client_sdk::learning::{Layout, MetricValue, Parameters, Table};
use client_sdk::runner::{self, Answer, JobConstraints, check_update};
use client_sdk::{Trained, TrainingJob};
use serde_json::json;

use crate::app::callback::refuse_in_key_store;
use crate::error::{TributaryError, of_this_process};
use crate::slot::Slot;
use crate::tensors::{Metric, Tensor, tensors};

/// One model to train. Takes one answer, from any thread of the process that has the participant; dropped without one, it counts as
/// failed, unless it should pause and has saved a checkpoint.
#[cfg_attr(feature = "uniffi", derive(uniffi::Object))]
pub struct Job {
    layout: Arc<Layout>,
    training: TrainingJob,
    constraints: JobConstraints,
    open: Mutex<Option<Open>>,
    /// Receives the number of examples.
    participant: Option<Weak<Slot>>,
    /// The process that got it: an answer in a child that was forked would go nowhere, and a checkpoint into its parent's journal.
    process: u32,
    /// A ready model was paused while it trained.
    is_paused: AtomicBool,
}

/// A job without an answer.
struct Open {
    /// As received, until the app trains them in place.
    values: Vec<f32>,
    answer: Answer,
}

/// Rows of `width` numbers, row after row, each with a class.
#[cfg(feature = "models")]
pub(crate) struct Rows {
    pub(crate) features: Vec<f32>,
    pub(crate) labels: Vec<u32>,
    pub(crate) width: usize,
}

impl Job {
    pub(crate) fn new(job: runner::Job, participant: Option<Weak<Slot>>) -> Self {
        let runner::Job { parameters, training, constraints, answer } = job;
        let layout = Arc::clone(parameters.layout());
        let open = Open { values: parameters.into_values(), answer };
        let (process, is_paused) = (std::process::id(), AtomicBool::new(false));
        Self { layout, training, constraints, open: Some(open).into(), participant, process, is_paused }
    }

    /// Rejects calls that a forked child cannot make for its parent.
    pub(crate) fn of_this_process(&self) -> Result<(), TributaryError> {
        of_this_process(self.process)
    }

    /// The work of the round.
    #[must_use]
    pub fn training(&self) -> &TrainingJob {
        &self.training
    }

    /// The constraints on the training beyond its plan.
    pub(crate) fn constraints(&self) -> &JobConstraints {
        &self.constraints
    }

    /// Of the parameters.
    pub(crate) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Does something with the parameters that are kept for training in place.
    ///
    /// # Errors
    /// [`TributaryError::Answered`].
    pub(crate) fn with_values<T>(&self, work: impl FnOnce(&mut Vec<f32>) -> T) -> Result<T, TributaryError> {
        self.open().as_mut().map(|open| work(&mut open.values)).ok_or(TributaryError::Answered)
    }

    /// Submits `values`, or the stored parameters if it is `None`. An update that does not fit leaves the job open.
    pub(crate) fn hand_in(
        &self,
        values: Option<Vec<f32>>,
        examples: u64,
        metrics: Vec<Metric>,
    ) -> Result<(), TributaryError> {
        self.of_this_process()?;
        let metrics: Vec<_> =
            metrics.into_iter().map(|Metric { name, value, count }| (name, MetricValue { value, count })).collect();
        let mut open = self.open();
        let kept = &open.as_ref().ok_or(TributaryError::Answered)?.values;
        check_update(&self.layout, values.as_deref().unwrap_or(kept), examples, &metrics)?;
        let Open { values: kept, answer } = open.take().ok_or(TributaryError::Answered)?;
        drop(open);
        let parameters = Parameters::new(Arc::clone(&self.layout), values.unwrap_or(kept));
        let parameters = parameters.map_err(|error| TributaryError::Update(error.to_string()))?;
        self.finished(answer, Trained { parameters, examples, metrics })
    }

    /// Submits the result of the job's training.
    #[cfg(feature = "models")]
    pub(crate) fn answer(&self, trained: Trained) -> Result<(), TributaryError> {
        let answer = self.take_answer()?;
        self.finished(answer, trained)
    }

    /// Hands in rows that fit the job's analysis.
    pub(crate) fn hand_in_table(&self, table: Table) -> Result<(), TributaryError> {
        let answer = self.take_answer()?;
        self.tell_examples(table.rows() as u64);
        Ok(answer.rows(table)?)
    }

    /// Answers a job whose round has stopped waiting.
    #[cfg(feature = "models")]
    pub(crate) fn give_up(&self) -> TributaryError {
        let given_up = self.take_answer().and_then(|answer| Ok(answer.fail("it took too long")?));
        given_up.err().unwrap_or(TributaryError::Answered)
    }

    /// A ready model has saved a checkpoint, and stopped because it should pause: the job comes again without an answer.
    #[cfg(feature = "models")]
    pub(crate) fn paused(&self) {
        self.is_paused.store(true, Ordering::Relaxed);
    }

    /// Whether a ready model was paused while it trained.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    /// Keeps a checkpoint.
    pub(crate) fn save(&self, state: &[u8]) -> Result<(), TributaryError> {
        refuse_in_key_store()?;
        self.of_this_process()?;
        Ok(self.training.checkpoints.save(state)?)
    }

    fn finished(&self, answer: Answer, trained: Trained) -> Result<(), TributaryError> {
        self.tell_examples(trained.examples);
        Ok(answer.finish(trained)?)
    }

    fn tell_examples(&self, examples: u64) {
        if let Some(slot) = self.participant.as_ref().and_then(Weak::upgrade) {
            slot.set_examples(examples);
        }
    }

    fn take_answer(&self) -> Result<Answer, TributaryError> {
        self.of_this_process()?;
        self.open().take().map(|open| open.answer).ok_or(TributaryError::Answered)
    }

    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg_attr(feature = "uniffi", uniffi::export)]
impl Job {
    /// The job as a JSON object: `task`, `round`, `purpose` (`shared` or `own`), `seed`, `plan`, `architecture`, `metrics`, and `tensors`
    /// with name and shape in the order of the flat vector.
    #[must_use]
    pub fn description(&self) -> String {
        let TrainingJob {
            task,
            round,
            purpose,
            plan,
            architecture,
            metrics,
            seed,
            table: _,
            analytics: _,
            deadline: _,
            cancel: _,
            checkpoints: _,
        } = &self.training;
        let all = json!({ "task": task, "round": round, "purpose": purpose.as_str(), "seed": seed, "plan": plan,
                          "architecture": architecture, "metrics": metrics, "tensors": self.layout.tensors() });
        all.to_string()
    }

    /// The model's tensors, in the order of the flat vector.
    #[must_use]
    pub fn tensors(&self) -> Vec<Tensor> {
        tensors(&self.layout)
    }

    /// Whether the round has stopped waiting: training may stop. Also true once it was answered.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.open().as_ref().is_none_or(|open| open.answer.is_overdue())
    }

    /// The last saved state of this job's training, before it was paused or its process was killed; null if it begins.
    #[must_use]
    pub fn checkpoint(&self) -> Option<Vec<u8>> {
        self.training.checkpoints.load().map(|state| state.to_vec())
    }

    /// Saves the state of the training, so that it resumes from there after a pause, and after its process was killed.
    /// It replaces the last one, has at most four times `max_model_bytes`, and is deleted with the round. The journal
    /// seals it, once in `checkpoint_every_ms` of the options. States saved in between are written before the training
    /// pauses.
    ///
    /// # Errors
    /// [`TributaryError::Update`] if it is too large; [`TributaryError::Overdue`] if the round has stopped waiting, or
    /// the job was answered or withdrawn; [`TributaryError::Journal`], [`TributaryError::OtherProcess`];
    /// [`TributaryError::InCallback`] in the key store. The last one is still there.
    pub fn save_checkpoint(&self, state: Vec<u8>) -> Result<(), TributaryError> {
        self.save(&state)
    }

    /// Whether the last checkpoint in the journal is old enough for a new one. Cheap: look between batches.
    #[must_use]
    pub fn is_checkpoint_due(&self) -> bool {
        self.training.checkpoints.is_due()
    }

    /// Whether the training should pause: save a checkpoint then, within ten seconds. The job is withdrawn, and comes
    /// again after the pause, if its round still waits. Without a checkpoint the round is given up. Cheap: call it
    /// between batches.
    #[must_use]
    pub fn should_pause(&self) -> bool {
        self.training.checkpoints.should_pause()
    }

    /// A copy of the parameters to train: 32-bit floats, little-endian, tensor after tensor.
    ///
    /// # Errors
    /// [`TributaryError::Answered`].
    pub fn parameters(&self) -> Result<Vec<u8>, TributaryError> {
        self.with_values(|values| values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    /// Submits the trained parameters, in the form of `parameters`, and the number of their examples, at least 1. The
    /// update leaves the device clipped, weighted, noised and masked as the task prescribes. Metrics, except those of
    /// the training itself (`train_…`), count as those of the received model, so measure the model that the job begins
    /// with. With `Purpose::Own` they are ignored, except for those of the device's own model (`personal_…`).
    ///
    /// # Errors
    /// [`TributaryError::Update`] if the update does not fit, and the job still takes an answer; [`TributaryError::Overdue`],
    /// [`TributaryError::Answered`], [`TributaryError::OtherProcess`].
    pub fn finish(&self, parameters: Vec<u8>, examples: u64, metrics: Vec<Metric>) -> Result<(), TributaryError> {
        let values = floats(&parameters)?;
        drop(parameters);
        self.hand_in(Some(values), examples, metrics)
    }

    /// Reports that training failed. The reason stays on the device.
    ///
    /// # Errors
    /// [`TributaryError::Overdue`], [`TributaryError::Answered`], [`TributaryError::OtherProcess`].
    pub fn fail(&self, reason: String) -> Result<(), TributaryError> {
        Ok(self.take_answer()?.fail(reason)?)
    }

    /// Reports that this app does not support such jobs. The reason stays on the device.
    ///
    /// # Errors
    /// [`TributaryError::Overdue`], [`TributaryError::Answered`], [`TributaryError::OtherProcess`].
    pub fn refuse(&self, reason: String) -> Result<(), TributaryError> {
        Ok(self.take_answer()?.refuse(reason)?)
    }
}

/// Floats as Kotlin and Swift hand them over.
pub(crate) fn floats(bytes: &[u8]) -> Result<Vec<f32>, TributaryError> {
    let (floats, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        let text = format!("{} bytes are no floats, of 4 bytes each", bytes.len());
        return Err(TributaryError::Update(text));
    }
    Ok(floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}
