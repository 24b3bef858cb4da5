//! Columns and examples of a caller.

use client_sdk::train::Column;
use client_sdk::{Elements, NamedExamples, Targets};

use super::super::arguments::{array, put_all, text};
use super::{Job, Model, TributaryCode, TributaryColumn, TributaryError, TributaryExamples};

/// The error of two arrays of which one must be NULL.
fn either(what: &str, one: &str, other: &str) -> TributaryError {
    TributaryError::Argument(format!("{what} must have either {one} or {other}; the other one is NULL"))
}

/// Name and elements of a caller's column.
fn column<'a>(column: &TributaryColumn) -> Result<(&'a str, Column<'a>), TributaryError> {
    let TributaryColumn { name, floats, integers, count } = *column;
    let name = text(name, "a column's name")?;
    let elements = match (floats.is_null(), integers.is_null()) {
        (false, true) => Column::F32(array(floats, count, &format!("floats of `{name}`"))?),
        (true, false) => Column::I64(array(integers, count, &format!("integers of `{name}`"))?),
        (true, true) | (false, false) => return Err(either(&format!("column `{name}`"), "floats", "integers")),
    };
    Ok((name, elements))
}

fn columns<'a>(examples: &TributaryExamples) -> Result<Vec<(&'a str, Column<'a>)>, TributaryError> {
    array(examples.columns, examples.column_count, "columns")?.iter().map(column).collect()
}

/// A copy of a caller's examples.
fn copied(examples: TributaryExamples) -> Result<NamedExamples, TributaryError> {
    let TributaryExamples { classes, numbers, target_count, examples: count, length, .. } = examples;
    let targets = match (classes.is_null(), numbers.is_null()) {
        (false, true) => Targets::Classes(array(classes, target_count, "classes")?.to_vec()),
        (true, false) => Targets::Numbers(array(numbers, target_count, "numbers")?.to_vec()),
        (true, true) | (false, false) => return Err(either("the examples", "classes", "numbers")),
    };
    let inputs = columns(&examples)?.into_iter().map(|(name, column)| (name.to_owned(), Elements::from(column)));
    Ok(NamedExamples { inputs: inputs.collect(), targets, count, length })
}

pub(super) fn train(
    job: &Job,
    examples: TributaryExamples,
    held_out: Option<TributaryExamples>,
) -> Result<(), TributaryError> {
    job.train_named(copied(examples)?, held_out.map(copied).transpose()?)
}

pub(super) fn predict(
    model: &Model,
    examples: &TributaryExamples,
    output: *mut f32,
    size: usize,
    length: *mut usize,
) -> Result<TributaryCode, TributaryError> {
    let found = model.output(&columns(examples)?, examples.examples, examples.length)?;
    put_all(&found.values, output, size, length)
}
