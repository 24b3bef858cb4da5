//! The withdrawal of a participant at its own request.

use pyo3::prelude::*;

use crate::errors;
use crate::participant::options;

/// Withdraws the participant of these options, and returns the signed statement: its text and its signature.
#[pyfunction]
pub(crate) fn withdraw(py: Python<'_>, given: &str) -> PyResult<(String, String)> {
    let options = options(given)?;
    let signed = py.detach(|| {
        let builder = options.into_builder().map_err(|error| errors::build(&error))?;
        client_sdk::runner::withdraw(builder).map_err(|error| errors::withdrawal(&error))
    })?;
    Ok((signed.statement, signed.signature.to_string()))
}
