//! The exceptions of the package.

use client_sdk::runner::{End, Kind};
use client_sdk::{BuildError, WithdrawalError};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict as _, PyType};

create_exception!(
    tributary,
    Error,
    PyException,
    "Anything that this package raises by itself. A call that Python itself refuses is a TypeError, as ever."
);
create_exception!(tributary, ConfigurationError, Error, "A setting is missing or cannot be used.");
create_exception!(
    tributary,
    ModelError,
    Error,
    "The model cannot be trained as a graph. The text names the node, tensor or input, and the reason."
);
create_exception!(tributary, EnrollmentError, Error, "The participant is not enrolled, was revoked, or has expired.");
create_exception!(tributary, JournalError, Error, "The journal cannot be used: see the text for what to do.");
create_exception!(tributary, Overdue, Error, "The round no longer waits for this job; go on with the next one.");
create_exception!(tributary, ClosedError, Error, "The participant was closed, or belongs to another process.");

/// The update does not fit the model. It is an [`Error`] and a `ValueError`, and `create_exception` knows one base.
pub(crate) struct UpdateError;

impl UpdateError {
    pub(crate) fn new_err(text: impl Into<String>) -> PyErr {
        let text: String = text.into();
        Python::attach(|py| match Self::class(py) {
            Ok(class) => PyErr::from_type(class, text),
            Err(error) => error,
        })
    }

    /// The class, which is made once.
    pub(crate) fn class(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let class = CLASS.get_or_try_init(py, || -> PyResult<Py<PyType>> {
            let bases = (py.get_type::<Error>(), py.get_type::<PyValueError>());
            let doc = "The update does not fit the model. Nothing was sent.";
            let about = [("__module__", "tributary"), ("__doc__", doc)].into_py_dict(py)?;
            let class = py.get_type::<PyType>().call1(("UpdateError", bases, about))?;
            Ok(class.cast_into::<PyType>()?.unbind())
        })?;
        Ok(class.bind(py).clone())
    }
}

/// For settings that make no participant.
pub(crate) fn build(error: &BuildError) -> PyErr {
    of_kind(error.into(), error.to_string())
}

/// For a withdrawal that failed.
pub(crate) fn withdrawal(error: &WithdrawalError) -> PyErr {
    of_kind(error.into(), error.to_string())
}

fn of_kind(kind: Kind, text: String) -> PyErr {
    match kind {
        Kind::Settings => ConfigurationError::new_err(text),
        Kind::Enrollment => EnrollmentError::new_err(text),
        Kind::Journal => JournalError::new_err(text),
        Kind::Defect | Kind::Other => Error::new_err(text),
    }
}

/// How a participant ended, for `Participant.next`.
pub(crate) fn outcome(end: &End) -> Result<&'static str, PyErr> {
    match end {
        Ok(client_sdk::Outcome::TaskOver { .. }) => Ok("task_over"),
        Ok(client_sdk::Outcome::Stopped) => Ok("stopped"),
        Err(error) => Err(of_kind(error.into(), error.to_string())),
    }
}

/// Refuses a call in a process that was forked from the one that has the participant.
pub(crate) fn of_this_process(process: u32) -> PyResult<()> {
    if std::process::id() == process {
        return Ok(());
    }
    Err(closed(
        "this participant belongs to the process that made it, and a forked child has none of its threads: make it after the fork",
    ))
}

/// After `close`, or in a process that was forked from the one that has the participant.
pub(crate) fn closed(why: &str) -> PyErr {
    ClosedError::new_err(why.to_owned())
}
