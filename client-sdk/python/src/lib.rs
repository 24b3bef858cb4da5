//! The native part of the Python package `tributary`: a participant on a thread of its own, whose jobs Python asks for.
//!
//! What Python can say better is in `tributary/`: names, NumPy views, iteration, asyncio. Nothing here waits with the
//! interpreter's lock held.

mod asked;
mod errors;
mod job;
mod machine;
mod model;
mod participant;

use pyo3::prelude::*;

#[pymodule]
mod _tributary {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::errors::{ClosedError, ConfigurationError, EnrollmentError, Error, JournalError, Overdue};
    #[pymodule_export]
    use super::job::Job;
    #[pymodule_export]
    use super::machine::Machine;
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::participant::Participant;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("UpdateError", super::errors::UpdateError::class(module.py())?)
    }
}
