//! Functions about jobs.
//!
//! This file is free of `unsafe` blocks. Exporting a name counts as unsafe, since another library might have the same.
#![expect(unsafe_code, reason = "`no_mangle`: all names begin with tributary_")]

use std::ffi::{CString, c_char};
use std::sync::Arc;

use client_sdk::task_spec::LocalOptimizer;

use super::arguments::{array, can_give, give, optional, put_all, text};
use super::code::TributaryCode;
use super::guard::guard;
use super::handles::Table;
use super::tensors::{NamedTensor, TributaryTensor, give_tensor, named, no_nul};
use crate::error::TributaryError;
use crate::job::Job;
#[cfg(feature = "models")]
use crate::job::Rows;
use crate::tensors::{self, Metric};

/// One model to train, or an analysis to give rows for: a number, to be copied freely. Any thread may use it. It is
/// valid until the job is answered (`tributary_job_finish`, `_give_rows`, `_fail`, `_refuse`) or freed
/// (`tributary_job_free`). Afterwards calls return `TRIBUTARY_CODE_CLOSED`, and **every pointer that was given for the
/// job is invalid**. A forked child cannot end it or save a checkpoint of it (`TRIBUTARY_CODE_OTHER_PROCESS`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TributaryJob {
    /// 0 is invalid.
    pub id: u64,
}

/// The rule of a step.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TributaryOptimizer {
    /// Stochastic gradient descent, with `momentum` and with `weight_decay` as a term of the gradient.
    Sgd = 0,
    /// AdamW (Loshchilov and Hutter 2019), with `beta1`, `beta2` and `epsilon`, and with `weight_decay` decoupled from
    /// the gradient.
    Adamw = 1,
}

/// The numbers of a job that most training functions need; `tributary_job_description` has all of the plan. An app that
/// does not support them refuses the job (`tributary_job_refuse`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TributaryPlan {
    /// Of the task, from 1.
    pub round: u32,
    /// Passes over the local data; not counted if `steps` is above 0.
    pub epochs: u32,
    /// Number of steps; 0 if `epochs` sets the length.
    pub steps: u32,
    /// Examples in a mini-batch.
    pub batch_size: u32,
    /// Of the local optimizer.
    pub learning_rate: f64,
    /// Of the local optimizer, from 0 to below 1.
    pub momentum: f64,
    /// L2 penalty.
    pub weight_decay: f64,
    /// Of FedProx: strength of the pull towards the received model; 0 without a pull.
    pub proximal_mu: f64,
    /// L2 norm to which the gradient of each step is clipped; 0 if it is not.
    pub gradient_clip: f64,
    /// Mini-batches whose gradients are averaged into one step, at least 1.
    pub accumulate: u32,
    /// The rule of a step; its state begins anew in each round.
    pub optimizer: TributaryOptimizer,
    /// AdamW: decay rate of the mean of the gradients, from 0 to below 1; 0 for another optimizer.
    pub beta1: f64,
    /// AdamW: decay rate of the mean of their squares, from 0 to below 1; 0 for another optimizer.
    pub beta2: f64,
    /// AdamW: added to the denominator of a step, above 0; 0 for another optimizer.
    pub epsilon: f64,
    /// For shuffling and the like: repeatable if the participant has a seed, otherwise random.
    pub seed: u64,
    /// 1 if the learning rate changes from step to step, by `schedule` and `warmup` of the plan in
    /// `tributary_job_description`; 0 if it is the same for all steps of the round. `learning_rate` includes the
    /// changes from round to round.
    pub rate_changes: i32,
    /// Training ends after so many steps and submits its result, even if `steps` or `epochs` ask for more. 0 means
    /// unlimited.
    pub budget_steps: u32,
    /// The same after so many milliseconds, but not before the first step. 0 means unlimited.
    pub budget_ms: u64,
}

/// A metric: of a training, or of a model.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TributaryMetric {
    /// Of a training: one of the task's metrics; others are dropped. Of a model: belongs to the model.
    pub name: *const c_char,
    /// The mean over the examples; finite.
    pub value: f64,
    /// Number of examples measured.
    pub count: u64,
}

/// Rows of numbers, each with a class.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TributaryRows {
    /// `rows` rows of `width` numbers, row after row.
    pub features: *const f32,
    /// The class of each row.
    pub labels: *const u32,
    /// Number of rows, at least 1.
    pub rows: usize,
    /// Numbers in a row.
    pub width: usize,
}

/// A job, with the targets of pointers into it.
pub(super) struct HandedOut {
    pub(super) job: Arc<Job>,
    description: CString,
    pub(super) analysis: Option<CString>,
    tensors: Vec<NamedTensor>,
    /// Of the frozen model whose adapters it trains.
    pub(super) base_tensors: Vec<NamedTensor>,
}

static JOBS: Table<HandedOut> = Table::new();

/// A handle for a job.
pub(super) fn hand_out(job: Arc<Job>) -> Result<TributaryJob, TributaryError> {
    let tensors = named(job.tensors())?;
    let (description, analysis) = (no_nul(job.description())?, job.analysis().map(no_nul).transpose()?);
    let base = job.constraints().base().map(|(base, _)| tensors::tensors(base.layout()));
    let base_tensors = named(base.unwrap_or_default())?;
    Ok(TributaryJob { id: JOBS.put(Arc::new(HandedOut { job, description, analysis, tensors, base_tensors })) })
}

/// Forgets a handle, if it is still one.
pub(super) fn forget(job: TributaryJob) {
    let _ = JOBS.take(job.id);
}

pub(super) fn with(
    job: TributaryJob,
    work: impl FnOnce(&HandedOut) -> Result<TributaryCode, TributaryError>,
) -> TributaryCode {
    guard(|| work(&*JOBS.get(job.id)?))
}

/// Answers a job; unless the answer does not fit, its handle is gone.
pub(super) fn answer(job: TributaryJob, put: impl FnOnce(&Job) -> Result<(), TributaryError>) -> TributaryCode {
    with(job, |handed_out| {
        handed_out.job.of_this_process()?;
        let answered = put(&handed_out.job);
        if !matches!(answered, Err(TributaryError::Update(_) | TributaryError::Argument(_))) {
            // Another thread may have done so, if it answered too late: this thread's answer counts all the same.
            forget(job);
        }
        answered.map(|()| TributaryCode::Ok)
    })
}

/// Puts the numbers of the job into `plan`.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_plan(job: TributaryJob, plan: *mut TributaryPlan) -> TributaryCode {
    with(job, |handed_out| {
        let training = handed_out.job.training();
        let numbers = &training.plan;
        let budget = numbers.budget.unwrap_or_default();
        let (optimizer, [beta1, beta2, epsilon]) = match numbers.optimizer {
            LocalOptimizer::Sgd {} => (TributaryOptimizer::Sgd, [0.0; 3]),
            LocalOptimizer::AdamW { beta1, beta2, epsilon } => (TributaryOptimizer::Adamw, [beta1, beta2, epsilon]),
        };
        let found = TributaryPlan {
            round: training.round,
            epochs: numbers.epochs,
            steps: numbers.steps.unwrap_or_default(),
            batch_size: numbers.batch_size,
            learning_rate: numbers.learning_rate,
            momentum: numbers.momentum,
            weight_decay: numbers.weight_decay,
            proximal_mu: numbers.proximal_mu,
            gradient_clip: numbers.gradient_clip.unwrap_or_default(),
            accumulate: numbers.accumulate,
            optimizer,
            beta1,
            beta2,
            epsilon,
            seed: training.seed,
            // The rate includes the changes by round.
            rate_changes: i32::from(numbers.schedule.is_some() || numbers.warmup.is_some()),
            budget_steps: budget.steps.unwrap_or_default(),
            budget_ms: budget.time_ms.unwrap_or_default(),
        };
        give(found, plan, "plan")?;
        Ok(TributaryCode::Ok)
    })
}

/// Points `json` to the job as a JSON object: `task`, `round`, `purpose` (`shared` or `own`), `seed`, `plan`, `architecture`,
/// `metrics`, and `tensors` with name and shape. The text belongs to the job.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_description(job: TributaryJob, json: *mut *const c_char) -> TributaryCode {
    with(job, |handed_out| {
        give(handed_out.description.as_ptr(), json, "json")?;
        Ok(TributaryCode::Ok)
    })
}

/// Puts the tensor of this number, from 0 and in the order of the parameters, into `tensor`; NOTHING beyond the last.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_tensor(
    job: TributaryJob,
    number: usize,
    tensor: *mut TributaryTensor,
) -> TributaryCode {
    with(job, |handed_out| give_tensor(&handed_out.tensors, number, tensor))
}

/// Points `values` to the parameters of the model, `count` floats, which may be trained in place. They belong to the
/// job, and the library leaves them alone until it is answered. Threads of the app that use them at the same time must
/// synchronize.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_parameters(
    job: TributaryJob,
    values: *mut *mut f32,
    count: *mut usize,
) -> TributaryCode {
    with(job, |handed_out| {
        can_give(count, "count")?;
        handed_out.job.with_values(|kept| {
            give(kept.as_mut_ptr(), values, "values")?;
            give(kept.len(), count, "count")
        })??;
        Ok(TributaryCode::Ok)
    })
}

/// OVERDUE if the round has stopped waiting for the job: training may stop. OK otherwise. Cheap: call it between
/// batches.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_check(job: TributaryJob) -> TributaryCode {
    with(job, |handed_out| Ok(if handed_out.job.is_overdue() { TributaryCode::Overdue } else { TributaryCode::Ok }))
}

/// OK if the training should pause, because the device's conditions do not hold or the app pauses: save a checkpoint
/// then, within ten seconds. The job is withdrawn, and comes again after the pause, if its round still waits. Without a
/// checkpoint the round is given up. NOTHING if training may continue. Cheap: call it between batches.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_should_pause(job: TributaryJob) -> TributaryCode {
    with(job, |handed_out| Ok(if_so(handed_out.job.should_pause())))
}

/// Copies the last saved state of this job's training, before it was paused or its process was killed, into `buffer` of
/// `size` bytes; NOTHING if it begins. `length`, unless NULL, gets its number of bytes; TOO_SMALL if the buffer has
/// less room.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_checkpoint(
    job: TributaryJob,
    buffer: *mut u8,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(job, |handed_out| match handed_out.job.checkpoint() {
        Some(state) => put_all(&state, buffer, size, length),
        None => Ok(TributaryCode::Nothing),
    })
}

/// Saves `count` bytes, the state of the training, so that it resumes from there after a pause, and after its process
/// was killed. They are copied, replace the last ones, and are deleted with the round. The journal seals them, once in
/// `checkpoint_every_ms` of the options. States saved in between are written before the training pauses.
///
/// Errors: UPDATE (more than four times `max_model_bytes`), OVERDUE (the round has stopped waiting, or the job was
/// withdrawn), JOURNAL; the last ones are still there, and so is the job. ARGUMENT, CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_save_checkpoint(job: TributaryJob, state: *const u8, count: usize) -> TributaryCode {
    with(job, |handed_out| {
        handed_out.job.save(array(state, count, "state")?)?;
        Ok(TributaryCode::Ok)
    })
}

/// OK if the last checkpoint in the journal is old enough for a new one; NOTHING if it is not. Cheap: call it between batches.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_is_checkpoint_due(job: TributaryJob) -> TributaryCode {
    with(job, |handed_out| Ok(if_so(handed_out.job.is_checkpoint_due())))
}

pub(super) fn if_so(holds: bool) -> TributaryCode {
    if holds { TributaryCode::Ok } else { TributaryCode::Nothing }
}

/// Submits the trained model, of at least one example, and ends the job. The update leaves the device clipped,
/// weighted, noised and masked as the task prescribes.
///
/// `values` are `count` floats in the order of the parameters, which are copied; NULL and 0, or the job's own pointer,
/// if they were trained in place. `metrics` may be NULL if `metric_count` is 0. Metrics, except those of the training
/// itself (`train_…`), count as those of the received model, so measure the model that the job begins with. With
/// TRIBUTARY_PURPOSE_OWN they are ignored, except for those of the device's own model (`personal_…`).
///
/// Errors: UPDATE (of another length, not finite, zero examples) and ARGUMENT, after which **the job is still open**;
/// OVERDUE, after which it has ended; CLOSED, or ANSWERED where another thread has just answered it.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_finish(
    job: TributaryJob,
    values: *const f32,
    count: usize,
    examples: u64,
    metrics: *const TributaryMetric,
    metric_count: usize,
) -> TributaryCode {
    answer(job, |job| {
        let metrics = array(metrics, metric_count, "metrics")?.iter().map(|metric| {
            let name = text(metric.name, "a metric's name")?.to_owned();
            Ok(Metric { name, value: metric.value, count: metric.count })
        });
        let metrics = metrics.collect::<Result<_, TributaryError>>()?;
        let (own, expected) = job.with_values(|kept| (kept.as_ptr(), kept.len()))?;
        let is_own = values.is_null() || values == own;
        if count != if values.is_null() { 0 } else { expected } {
            return Err(TributaryError::Update(format!("the update has {count} parameters; the model has {expected}")));
        }
        let given = if is_own { None } else { Some(array(values, count, "values")?.to_vec()) };
        job.hand_in(given, examples, metrics)
    })
}

/// Trains the task's ready model (`model.architecture`) by the plan and the job's constraints, submits the result and
/// ends the job: for apps without a training function. `features` are `rows` rows of `width` numbers, `labels` the
/// class of each row. Waits until it is trained.
///
/// Errors: UPDATE (the examples do not fit the model, or the task's model is not a ready one, as always in a library
/// that was built without the ready models) and ARGUMENT, after which **the job is still open**. OVERDUE: the round has
/// stopped waiting, or the training should pause and has saved a checkpoint. The handle is then invalid, and the result
/// was not submitted. A paused job comes again, with a handle of its own, while its round still waits. CLOSED, or
/// ANSWERED where another thread has just answered it.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_train(
    job: TributaryJob,
    features: *const f32,
    labels: *const u32,
    rows: usize,
    width: usize,
) -> TributaryCode {
    answer(job, |job| train(job, TributaryRows { features, labels, rows, width }, None))
}

/// The same with held-out rows. For a job of the shared model the result then includes the initial model's `loss` and
/// `accuracy` on `held_out`, for one of the device's own model the trained model's `personal_loss` and `personal_accuracy`.
/// `held_out` may be NULL. Both may go as soon as the call has returned.
///
/// Errors: those of `tributary_job_train`.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_train_and_measure(
    job: TributaryJob,
    rows: *const TributaryRows,
    held_out: *const TributaryRows,
) -> TributaryCode {
    answer(job, |job| {
        let no_rows = || TributaryError::Argument("rows is NULL".to_owned());
        let rows = optional(rows, "rows")?.ok_or_else(no_rows)?;
        train(job, rows, optional(held_out, "held_out")?)
    })
}

/// A copy of a caller's rows.
#[cfg(feature = "models")]
fn copied(TributaryRows { features, labels, rows, width }: TributaryRows) -> Result<Rows, TributaryError> {
    let count = rows.checked_mul(width);
    let count = count.ok_or_else(|| TributaryError::Argument(format!("{rows} rows of {width} are too many")))?;
    let features = array(features, count, "features")?.to_vec();
    Ok(Rows { features, labels: array(labels, rows, "labels")?.to_vec(), width })
}

#[cfg(feature = "models")]
fn train(job: &Job, rows: TributaryRows, held_out: Option<TributaryRows>) -> Result<(), TributaryError> {
    job.train_rows(copied(rows)?, held_out.map(copied).transpose()?)
}

#[cfg(not(feature = "models"))]
fn train(_: &Job, _: TributaryRows, _: Option<TributaryRows>) -> Result<(), TributaryError> {
    Err(TributaryError::Update("this library was built without the ready models".to_owned()))
}

/// Reports that training failed, and ends the job. `reason` stays on the device.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_fail(job: TributaryJob, reason: *const c_char) -> TributaryCode {
    answer(job, |job| job.fail(text(reason, "reason")?.to_owned()))
}

/// Reports that this app does not support such jobs, and ends the job. `reason` stays on the device.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_refuse(job: TributaryJob, reason: *const c_char) -> TributaryCode {
    answer(job, |job| job.refuse(text(reason, "reason")?.to_owned()))
}

/// Ends a job without an answer, which then counts as failed.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_free(job: TributaryJob) -> TributaryCode {
    with(job, |handed_out| {
        handed_out.job.of_this_process()?;
        JOBS.take(job.id).map(|_| TributaryCode::Ok)
    })
}

#[cfg(test)]
mod tests;
