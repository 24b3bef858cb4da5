//! Functions about models.
//!
//! This file is free of `unsafe` blocks. Exporting a name counts as unsafe, since another library might have the same.
#![expect(unsafe_code, reason = "`no_mangle`: all names begin with tributary_")]

use std::ffi::{CString, c_char};
use std::ptr::null;
use std::sync::Arc;

use super::arguments::{array, can_give, give, put, text};
use super::callbacks::TributaryCallbacks;
use super::code::TributaryCode;
use super::guard::guard;
use super::handles::Table;
use super::job::TributaryMetric;
use super::participant::{TributaryParticipant, callbacks_of, with as with_participant};
use super::tensors::{NamedTensor, TributaryTensor, give_tensor, named, no_nul};
use crate::error::TributaryError;
use crate::model::{Model, load_model};
use crate::tensors::Metric;

/// The model of a task on this device: a number, to be copied freely. Any thread may use it. It stands for the model until
/// `tributary_model_free`, also after the participant was closed; afterwards calls return `TRIBUTARY_CODE_CLOSED`, and **every
/// pointer that was given for the model is gone**.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TributaryModel {
    /// 0 is invalid.
    pub id: u64,
}

/// Where a model comes from. The pointers belong to the model.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TributaryOrigin {
    /// Of a personalized model: the round that left it on the device, from 1. 0 of a published one.
    pub round: u32,
    /// The published version, where 0 is the initial one. 0 for a personalized model.
    pub version: u32,
    /// Of a published model: SHA-256 of its file, in hexadecimal. NULL of a personalized one.
    pub sha256: *const c_char,
    /// The task's description of its model as JSON; NULL if the task lacks it.
    pub architecture: *const c_char,
}

/// A model, with the targets of pointers into it.
pub(super) struct HandedOut {
    pub(super) model: Arc<Model>,
    sha256: Option<CString>,
    architecture: Option<CString>,
    tensors: Vec<NamedTensor>,
    metrics: Vec<(CString, Metric)>,
}

static MODELS: Table<HandedOut> = Table::new();

/// Writes a handle for the model to `to`; NOTHING if `model` is `None`.
pub(super) fn hand_out(model: Option<Arc<Model>>, to: *mut TributaryModel) -> Result<TributaryCode, TributaryError> {
    let Some(model) = model else { return Ok(TributaryCode::Nothing) };
    let named_metric = |metric: Metric| Ok((no_nul(metric.name.clone())?, metric));
    let handed_out = HandedOut {
        sha256: model.sha256().map(no_nul).transpose()?,
        architecture: model.architecture().map(no_nul).transpose()?,
        tensors: named(model.tensors())?,
        metrics: model.metrics().into_iter().map(named_metric).collect::<Result<_, TributaryError>>()?,
        model,
    };
    give(TributaryModel { id: MODELS.put(Arc::new(handed_out)) }, to, "model")?;
    Ok(TributaryCode::Ok)
}

pub(super) fn with(
    model: TributaryModel,
    work: impl FnOnce(&HandedOut) -> Result<TributaryCode, TributaryError>,
) -> TributaryCode {
    guard(|| work(&*MODELS.get(model.id)?))
}

/// Puts a handle for the model of a task into `model`, for use on this device. If the task personalizes, this is the
/// device's own model. Otherwise it is the verified published version that the device's last round began with, or the
/// last version once the task is over. NOTHING before the first model. It is read from the journal, so it needs no
/// network, and outlives the participant. It stays the same while the participant continues. Free it with
/// `tributary_model_free`.
///
/// Errors: ARGUMENT, JOURNAL, CLOSED, IN_CALLBACK.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_model(
    participant: TributaryParticipant,
    task: *const c_char,
    model: *mut TributaryModel,
) -> TributaryCode {
    with_participant(participant, |participant| {
        can_give(model, "model")?;
        hand_out(participant.model(text(task, "task")?.to_owned())?, model)
    })
}

/// The same while the participant is stopped: from the journal in the options, without a thread or a network. `options`
/// and `callbacks` are those of `tributary_start`; of the callbacks, only those for secrets are used. A running
/// participant locks the journal: use `tributary_model` then.
///
/// Errors: ARGUMENT, CONFIGURATION, JOURNAL.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_model_load(
    options: *const c_char,
    callbacks: *const TributaryCallbacks,
    task: *const c_char,
    model: *mut TributaryModel,
) -> TributaryCode {
    guard(|| {
        can_give(model, "model")?;
        let keys = callbacks_of(callbacks)?.key_store;
        hand_out(load_model(text(options, "options")?.to_owned(), keys, text(task, "task")?.to_owned())?, model)
    })
}

/// Copies the names of the tasks that there is a model of, the latest last, into `buffer` as a JSON array, as `tributary_last_error`
/// does with its text.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_models(
    participant: TributaryParticipant,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with_participant(participant, |participant| {
        put(&serde_json::Value::from(participant.models()?).to_string(), buffer, size, length)
    })
}

/// Puts into `origin` where the model comes from.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_model_origin(model: TributaryModel, origin: *mut TributaryOrigin) -> TributaryCode {
    with(model, |handed_out| {
        let text = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
        let found = TributaryOrigin {
            round: handed_out.model.round().unwrap_or_default(),
            version: handed_out.model.version().unwrap_or_default(),
            sha256: text(&handed_out.sha256),
            architecture: text(&handed_out.architecture),
        };
        give(found, origin, "origin")?;
        Ok(TributaryCode::Ok)
    })
}

/// Puts the tensor of this number, from 0 and in the order of the parameters, into `tensor`; NOTHING beyond the last.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_model_tensor(
    model: TributaryModel,
    number: usize,
    tensor: *mut TributaryTensor,
) -> TributaryCode {
    with(model, |handed_out| give_tensor(&handed_out.tensors, number, tensor))
}

/// Puts into `metric` a metric of the model, by number, from 0; NOTHING beyond the last. Those of a published model are
/// those of the app's answer in the round that began with it, without those of the training (`train_loss`). The list is
/// empty before that answer, after an answer without metrics of the model, as that of `tributary_job_train`, and for
/// the last version of a task that is over.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_model_metric(
    model: TributaryModel,
    number: usize,
    metric: *mut TributaryMetric,
) -> TributaryCode {
    with(model, |handed_out| {
        can_give(metric, "metric")?;
        let Some((name, Metric { name: _, value, count })) = handed_out.metrics.get(number) else {
            return Ok(TributaryCode::Nothing);
        };
        give(TributaryMetric { name: name.as_ptr(), value: *value, count: *count }, metric, "metric")?;
        Ok(TributaryCode::Ok)
    })
}

/// Points `values` to the parameters, `count` floats, flat and row-major. They belong to the model, and are only to be read.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_model_parameters(
    model: TributaryModel,
    values: *mut *const f32,
    count: *mut usize,
) -> TributaryCode {
    with(model, |handed_out| {
        can_give(count, "count")?;
        let parameters = handed_out.model.values();
        give(parameters.as_ptr(), values, "values")?;
        give(parameters.len(), count, "count")?;
        Ok(TributaryCode::Ok)
    })
}

/// Computes the scores of each class for each row, before softmax, if the model is one of the SDK's own
/// (`model.architecture`), and copies them into `scores`, row after row; `size` is its room in floats. `rows` are
/// `count` numbers, row after row. `length`, unless NULL, gets the number of scores; TOO_SMALL if the buffer has less
/// room.
///
/// Errors: ARGUMENT (the model is not one of the SDK's own, as always in a library that was built without the ready
/// models, or the rows do not fit), CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_model_scores(
    model: TributaryModel,
    rows: *const f32,
    count: usize,
    scores: *mut f32,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(model, |handed_out| {
        let rows = array(rows, count, "rows")?;
        score(&handed_out.model, rows, scores, size, length)
    })
}

#[cfg(feature = "models")]
fn score(
    model: &Model,
    rows: &[f32],
    scores: *mut f32,
    size: usize,
    length: *mut usize,
) -> Result<TributaryCode, TributaryError> {
    super::arguments::put_all(model.score_rows(rows)?.values(), scores, size, length)
}

#[cfg(not(feature = "models"))]
fn score(_: &Model, _: &[f32], _: *mut f32, _: usize, _: *mut usize) -> Result<TributaryCode, TributaryError> {
    Err(TributaryError::Argument("this library was built without the ready models".to_owned()))
}

/// Forgets the model.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_model_free(model: TributaryModel) -> TributaryCode {
    guard(|| MODELS.take(model.id).map(|_| TributaryCode::Ok))
}
