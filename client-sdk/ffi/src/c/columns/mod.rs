//! Functions about graphs whose inputs have names.
//!
//! This file is free of `unsafe` blocks. Exporting a name counts as unsafe, since another library might have the same.
#![expect(unsafe_code, reason = "`no_mangle`: all names begin with tributary_")]

use std::ffi::c_char;

#[cfg(feature = "models")]
use client_sdk::{Elements, NamedExamples, Targets, train::Column};

use super::arguments::optional;
#[cfg(feature = "models")]
use super::arguments::{array, put_all, text};
use super::code::TributaryCode;
use super::job::{TributaryJob, answer};
use super::model::{TributaryModel, with};
#[cfg(feature = "models")]
use crate::columns::truths as converted;
use crate::error::TributaryError;
use crate::job::Job;
use crate::model::Model;

/// An input of a graph, for all examples. Two of `floats`, `integers` and `truths` are NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TributaryColumn {
    /// Its name in the graph of `model.architecture`.
    pub name: *const c_char,
    /// For an input of floats: `count` elements, one example after the other, each row-major.
    pub floats: *const f32,
    /// For an input of integers: `count` elements, such as ids from 0 on.
    pub integers: *const i64,
    /// For an input of truth values: `count` bytes, such as a mask's; 0 is false, 1 is true.
    pub truths: *const u8,
    /// Number of elements of all examples.
    pub count: usize,
}

/// Examples of a graph. A prediction ignores the targets; for training one of `classes` and `numbers` is NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TributaryExamples {
    /// One for each input of the graph, in any order.
    pub columns: *const TributaryColumn,
    /// Number of `columns`: that of the graph's inputs.
    pub column_count: usize,
    /// Targets for `cross_entropy` and `next_token`: a class for each example, or a token for each position.
    pub classes: *const u32,
    /// Targets for the other losses: a number for each output.
    pub numbers: *const f32,
    /// Number of `classes` or `numbers`.
    pub target_count: usize,
    /// Number of examples, at least 1.
    pub examples: usize,
    /// Length of their sequences; 1 for a graph without.
    pub length: usize,
}

/// Trains the task's graph (`model.architecture`) by the plan and the job's constraints, submits the result and ends the job:
/// for a graph whose examples are not rows with classes. Waits until it is trained. With `held_out`, which may be NULL, the
/// result for a job of the shared model includes the initial model's `loss` on it, and its `accuracy` unless the model
/// predicts numbers. All of it may go as soon as the call has returned.
///
/// Errors: UPDATE (a column is unknown, missing, given twice, of another type or length, or has an id outside its table: the
/// text lists the graph's inputs; the targets do not fit; the task's model is no graph, as always in a library that was built
/// without the ready models) and ARGUMENT, after which **the job is still open**. Others as for `tributary_job_train`.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_train_columns(
    job: TributaryJob,
    examples: *const TributaryExamples,
    held_out: *const TributaryExamples,
) -> TributaryCode {
    answer(job, |job| train(job, required(examples)?, optional(held_out, "held_out")?))
}

/// Computes the first output of a graph (`model.architecture`), such as scores before softmax or numbers, and copies it into
/// `output`, one example after the other; `size` is its room in floats. `length`, unless NULL, gets the number of floats;
/// TOO_SMALL if the buffer has less room.
///
/// Errors: ARGUMENT (the model is no graph, as always in a library that was built without the ready models; a column is
/// unknown, missing, given twice, of another type or length, or has an id outside its table: the text lists the graph's
/// inputs), CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_model_predict(
    model: TributaryModel,
    examples: *const TributaryExamples,
    output: *mut f32,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(model, |handed_out| predict(&handed_out.model, &required(examples)?, output, size, length))
}

fn required(examples: *const TributaryExamples) -> Result<TributaryExamples, TributaryError> {
    optional(examples, "examples")?.ok_or_else(|| TributaryError::Argument("examples is NULL".to_owned()))
}

/// Elements of a caller's column.
#[cfg(feature = "models")]
enum Given<'a> {
    /// Numbers, where they are.
    Borrowed(Column<'a>),
    /// Truth values, converted from bytes.
    Truths(Vec<bool>),
}

#[cfg(feature = "models")]
impl Given<'_> {
    fn column(&self) -> Column<'_> {
        match self {
            Self::Borrowed(column) => *column,
            Self::Truths(values) => Column::Bool(values),
        }
    }
}

/// Name and elements of a caller's column.
#[cfg(feature = "models")]
fn column<'a>(column: &TributaryColumn) -> Result<(&'a str, Given<'a>), TributaryError> {
    let TributaryColumn { name, floats, integers, truths, count } = *column;
    let name = text(name, "a column's name")?;
    let elements = match (floats.is_null(), integers.is_null(), truths.is_null()) {
        (false, true, true) => Given::Borrowed(Column::F32(array(floats, count, &format!("floats of `{name}`"))?)),
        (true, false, true) => Given::Borrowed(Column::I64(array(integers, count, &format!("integers of `{name}`"))?)),
        (true, true, false) => {
            let values = converted(array(truths, count, &format!("truths of `{name}`"))?);
            Given::Truths(values.map_err(|why| TributaryError::Argument(format!("column `{name}`: {why}")))?)
        }
        _ => {
            let why = format!("column `{name}` must have one of floats, integers and truths; the others are NULL");
            return Err(TributaryError::Argument(why));
        }
    };
    Ok((name, elements))
}

#[cfg(feature = "models")]
fn columns<'a>(examples: &TributaryExamples) -> Result<Vec<(&'a str, Given<'a>)>, TributaryError> {
    array(examples.columns, examples.column_count, "columns")?.iter().map(column).collect()
}

/// A copy of a caller's examples.
#[cfg(feature = "models")]
fn copied(examples: TributaryExamples) -> Result<NamedExamples, TributaryError> {
    let TributaryExamples { classes, numbers, target_count, examples: count, length, .. } = examples;
    let targets = match (classes.is_null(), numbers.is_null()) {
        (false, true) => Targets::Classes(array(classes, target_count, "classes")?.to_vec()),
        (true, false) => Targets::Numbers(array(numbers, target_count, "numbers")?.to_vec()),
        (true, true) | (false, false) => {
            let why = "the examples must have either classes or numbers; the other one is NULL";
            return Err(TributaryError::Argument(why.to_owned()));
        }
    };
    let given = columns(&examples)?;
    let inputs = given.iter().map(|(name, given)| ((*name).to_owned(), Elements::from(given.column())));
    Ok(NamedExamples { inputs: inputs.collect(), targets, count, length })
}

#[cfg(feature = "models")]
fn train(job: &Job, examples: TributaryExamples, held_out: Option<TributaryExamples>) -> Result<(), TributaryError> {
    job.train_named(copied(examples)?, held_out.map(copied).transpose()?)
}

#[cfg(feature = "models")]
fn predict(
    model: &Model,
    examples: &TributaryExamples,
    output: *mut f32,
    size: usize,
    length: *mut usize,
) -> Result<TributaryCode, TributaryError> {
    let given = columns(examples)?;
    let columns: Vec<_> = given.iter().map(|(name, given)| (*name, given.column())).collect();
    let found = model.output(&columns, examples.examples, examples.length)?;
    put_all(&found.values, output, size, length)
}

#[cfg(not(feature = "models"))]
fn train(_: &Job, _: TributaryExamples, _: Option<TributaryExamples>) -> Result<(), TributaryError> {
    Err(TributaryError::Update("this library was built without the ready models".to_owned()))
}

#[cfg(not(feature = "models"))]
fn predict(
    _: &Model,
    _: &TributaryExamples,
    _: *mut f32,
    _: usize,
    _: *mut usize,
) -> Result<TributaryCode, TributaryError> {
    Err(TributaryError::Argument("this library was built without the ready models".to_owned()))
}

#[cfg(test)]
#[cfg(feature = "models")]
mod tests;
