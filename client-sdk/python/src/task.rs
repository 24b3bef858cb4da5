//! Tasks that an operator creates.

use client_sdk::models::complete_task as complete;
use pyo3::prelude::*;
use serde_json::Value;

use crate::errors::ConfigurationError;

/// A task as JSON with the tensors of its architecture, and the sizes that follow from its table.
#[pyfunction]
pub(crate) fn complete_task(task: &str) -> PyResult<String> {
    let mut task: Value = serde_json::from_str(task).map_err(|error| ConfigurationError::new_err(error.to_string()))?;
    complete(&mut task).map_err(|error| ConfigurationError::new_err(error.to_string()))?;
    Ok(task.to_string())
}
