//! A participant that Python drives.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use client_sdk::clock::{Clock as _, Now, SystemClock};
use client_sdk::participant::{Driven, Step};
use client_sdk::runner::{CallbackTrainer, Capabilities};
use pyo3::prelude::*;

use crate::asked;
use crate::errors::{self, ConfigurationError, JournalError};
use crate::job::Job;
use crate::model::Model;
use crate::participant::{builder, device};

/// A participant that its caller drives: `tributary.Machine` wraps it.
#[pyclass(frozen, module = "tributary._tributary")]
pub(crate) struct Machine {
    /// `None` after [`Self::close`]. A call holds the lock only to clone the value, so that a close does not wait for a training.
    driven: RwLock<Option<Arc<Driven>>>,
    capabilities: Capabilities,
    clock: SystemClock,
    /// The process that opened it.
    process: u32,
}

impl Machine {
    /// Works with what is driven, the interpreter's lock released.
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Driven) -> T + Send) -> PyResult<T> {
        errors::of_this_process(self.process)?;
        let done = py.detach(|| {
            let driven = self.driven.read().unwrap_or_else(PoisonError::into_inner).clone();
            driven.map(|driven| work(&driven))
        });
        done.ok_or_else(|| errors::closed("this participant was closed"))
    }
}

#[pymethods]
impl Machine {
    /// Opens it with the options as JSON. `on_event` is called with a name and fields as JSON, by the thread that ticks.
    #[new]
    #[pyo3(signature = (options, on_event = None))]
    fn new(py: Python<'_>, options: &str, on_event: Option<Py<PyAny>>) -> PyResult<Self> {
        let made = builder(py, options, on_event, |builder, capabilities| Ok((builder.build_driven()?, capabilities)))?;
        let ((driven, capabilities), _) = made;
        let driven = Some(Arc::new(driven)).into();
        Ok(Self { driven, capabilities, clock: SystemClock::new(), process: std::process::id() })
    }

    /// What to do next, and the moment of `wait_until` in seconds. The device's state is JSON.
    #[pyo3(signature = (elapsed, state, examples = None))]
    fn tick(
        &self,
        py: Python<'_>,
        elapsed: Option<f64>,
        state: &str,
        examples: Option<u64>,
    ) -> PyResult<(&'static str, Option<f64>)> {
        let (device, own) = (device(state)?, self.clock.now());
        let elapsed = elapsed.map(Duration::try_from_secs_f64).transpose();
        let elapsed =
            elapsed.map_err(|error| ConfigurationError::new_err(format!("elapsed cannot be used: {error}")))?;
        let now = Now { elapsed: elapsed.unwrap_or(own.elapsed), ..own };
        match self.with(py, |driven| driven.tick(now, device, examples))? {
            Step::Send => Ok(("send", None)),
            Step::Fetch => Ok(("fetch", None)),
            Step::Train => Ok(("train", None)),
            Step::Journal => Ok(("journal", None)),
            Step::Busy => Ok(("busy", None)),
            Step::WaitUntil(moment) => Ok(("wait_until", Some(moment.as_secs_f64()))),
            Step::Finished(end) => errors::outcome(&end).map(|outcome| (outcome, None)),
        }
    }

    /// Does what was said. `train` is called with a job; what it raises is raised, and the job counts as failed.
    fn perform(&self, py: Python<'_>, train: Py<PyAny>) -> PyResult<bool> {
        let mut raised = None;
        let did = self.with(py, |driven| {
            let trainer = CallbackTrainer::new(0, |job| {
                raised = Python::attach(|py| {
                    let job = Bound::new(py, Job::new(job))?;
                    let done = train.call1(py, (&job,));
                    // Give the job up here: after this call its answer is no longer awaited.
                    let _ = job.get().give_up("the training ended without an answer", done.is_err());
                    done
                })
                .err();
            });
            driven.perform(&mut trainer.with_capabilities(self.capabilities.clone()))
        })?;
        raised.map_or(Ok(did), Err)
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Driven::stop)
    }

    /// Gives the journal back, once nobody performs anything any more; a second call does nothing.
    fn close(&self, py: Python<'_>) {
        // In a child that was forked it is its parent's.
        if std::process::id() == self.process {
            py.detach(|| {
                let driven = self.driven.write().unwrap_or_else(PoisonError::into_inner).take();
                drop(driven);
            });
        }
    }

    /// The participant's id, once it is enrolled.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with(py, |driven| driven.look(asked::id))
    }

    /// Name and description of the condition that held it up at the last tick.
    fn held_up(&self, py: Python<'_>) -> PyResult<Option<(&'static str, String)>> {
        self.with(py, |driven| driven.look(asked::held_up))
    }

    /// What was spent on each task, as JSON.
    fn privacy_spent(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |driven| driven.look(asked::privacy_spent))
    }

    /// What was spent on all tasks together, as JSON.
    fn privacy_lifetime(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |driven| driven.look(asked::privacy_lifetime))
    }

    /// What was refused, and why, as JSON.
    fn refusals(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |driven| driven.look(asked::refusals))
    }

    /// What was sent and received: today, then ever.
    fn data_use(&self, py: Python<'_>) -> PyResult<[u64; 4]> {
        self.with(py, |driven| driven.look(asked::data_use))
    }

    fn model(&self, py: Python<'_>, task: &str) -> PyResult<Option<Model>> {
        let found = self.with(py, |driven| driven.model_of(task))?;
        Ok(found.map_err(|error| JournalError::new_err(error.to_string()))?.map(Model::new))
    }

    /// Names of the tasks that there is a model of, the latest last.
    fn models(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let found = self.with(py, Driven::models)?;
        Ok(asked::names(found.map_err(|error| JournalError::new_err(error.to_string()))?))
    }
}
