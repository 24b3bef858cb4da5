//! The native part of the Python package `tributary`: a participant on its own thread, from which Python requests jobs.
//!
//! The Python code in `tributary/` adds names, NumPy views, iteration and asyncio. Blocking calls here release the interpreter's lock.

mod asked;
mod errors;
mod examples;
mod graph;
mod job;
mod machine;
mod model;
mod participant;
mod proxy;
mod task;
mod withdrawal;

use pyo3::prelude::*;

#[pymodule]
mod _tributary {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::errors::{ClosedError, ConfigurationError, EnrollmentError, Error, JournalError, ModelError, Overdue};
    #[pymodule_export]
    use super::graph::{Graph, import_graph};
    #[pymodule_export]
    use super::job::Job;
    #[pymodule_export]
    use super::machine::Machine;
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::participant::Participant;
    #[pymodule_export]
    use super::proxy::forward_proxy;
    #[pymodule_export]
    use super::task::complete_task;
    #[pymodule_export]
    use super::withdrawal::withdraw;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("UpdateError", super::errors::UpdateError::class(module.py())?)
    }
}
