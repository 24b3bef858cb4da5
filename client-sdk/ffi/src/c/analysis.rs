//! Functions about jobs that are analyses.
//!
//! This file is free of `unsafe` blocks. Exporting a name counts as unsafe, since another library might have the same.
#![expect(unsafe_code, reason = "`no_mangle`: all names begin with tributary_")]

use std::ffi::c_char;

use super::arguments::{array, can_give, give};
use super::code::TributaryCode;
use super::job::{TributaryJob, answer, with};
use crate::error::TributaryError;

/// Points `json` to the job's analysis as the JSON object of its task: `kind`, `max_rows`, `columns` and further
/// parameters. NOTHING if the job trains a model. The text belongs to the job. Only an app with `answers_analyses` in
/// its options gets an analysis. Its parameters are empty, except those of an evaluation (`kind`), which are the model to measure: the rows are
/// its predictions, the probability of each class or one number, and the targets the true classes or numbers.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_analysis(job: TributaryJob, json: *mut *const c_char) -> TributaryCode {
    with(job, |handed_out| {
        can_give(json, "json")?;
        let Some(analysis) = &handed_out.analysis else { return Ok(TributaryCode::Nothing) };
        give(analysis.as_ptr(), json, "json")?;
        Ok(TributaryCode::Ok)
    })
}

/// Submits this device's rows for an analysis, and ends the job. `values` are `rows` rows of `width` numbers, row after
/// row, with the columns of the analysis in their order. `targets` has the value to predict of each row; NULL if the
/// analysis predicts none. Both are copied. The rows stay on the device: only the counts and sums of the analysis leave
/// it, masked as the task prescribes. Give the same rows in the same order in each round.
///
/// Errors: UPDATE (the rows do not fit the analysis, or have a number that is not finite, or the job trains a model) and ARGUMENT, after which
/// **the job is still open**; OVERDUE, after which it has ended; CLOSED, or ANSWERED where another thread has just answered it.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_job_give_rows(
    job: TributaryJob,
    values: *const f64,
    rows: usize,
    width: usize,
    targets: *const f64,
) -> TributaryCode {
    answer(job, |job| {
        let count = rows.checked_mul(width);
        let count = count.ok_or_else(|| TributaryError::Argument(format!("{rows} rows of {width} are too many")))?;
        let values = array(values, count, "values")?.to_vec();
        let targets = if targets.is_null() { None } else { Some(array(targets, rows, "targets")?.to_vec()) };
        job.hand_in_rows(width, values, targets)
    })
}

#[cfg(test)]
mod tests;
