//! A participant that Python drives.

use std::time::Duration;

use client_sdk::clock::{Clock as _, Now, SystemClock};
use client_sdk::participant::{Driven, Step};
use client_sdk::runner::{Abilities, Called};
use pyo3::prelude::*;

use crate::asked;
use crate::errors::{self, JournalError};
use crate::job::Job;
use crate::model::Model;
use crate::participant::{builder, device};

/// A participant that its caller drives: `tributary.Machine` wraps it.
#[pyclass(frozen, module = "tributary._tributary")]
pub(crate) struct Machine {
    driven: Driven,
    abilities: Abilities,
    clock: SystemClock,
    /// The process that opened it.
    process: u32,
}

impl Machine {
    fn driven(&self) -> PyResult<&Driven> {
        errors::of_this_process(self.process).map(|()| &self.driven)
    }
}

#[pymethods]
impl Machine {
    /// Opens it with the options as JSON. `on_event` is called with a name and fields as JSON, by the thread that ticks.
    #[new]
    #[pyo3(signature = (options, on_event = None))]
    fn new(py: Python<'_>, options: &str, on_event: Option<Py<PyAny>>) -> PyResult<Self> {
        let made = builder(py, options, on_event, |builder, abilities| Ok((builder.build_driven()?, abilities)))?;
        let ((driven, abilities), _) = made;
        Ok(Self { driven, abilities, clock: SystemClock::new(), process: std::process::id() })
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
        let (driven, device, own) = (self.driven()?, device(state)?, self.clock.now());
        let elapsed = elapsed.map_or(own.elapsed, |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
        match py.detach(|| driven.tick(Now { elapsed, ..own }, device, examples)) {
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
        let driven = self.driven()?;
        let mut raised = None;
        let did = py.detach(|| {
            let trainer = Called::new(0, |job| {
                raised = Python::attach(|py| {
                    let job = Bound::new(py, Job::new(job))?;
                    let done = train.call1(py, (&job,));
                    // Not later: nobody waits for it any more.
                    let _ = job.get().give_up("the training ended without an answer", done.is_err());
                    done
                })
                .err();
            });
            driven.perform(&mut trainer.with_abilities(self.abilities.clone()))
        });
        raised.map_or(Ok(did), Err)
    }

    fn stop(&self) -> PyResult<()> {
        self.driven().map(Driven::stop)
    }

    /// The participant's id, once it is enrolled.
    #[getter]
    fn id(&self) -> PyResult<Option<String>> {
        Ok(self.driven()?.look(asked::id))
    }

    /// Name and description of the condition that held it up at the last tick.
    fn held_up(&self) -> PyResult<Option<(&'static str, String)>> {
        Ok(self.driven()?.look(asked::held_up))
    }

    /// What was spent on each task, as JSON.
    fn privacy_spent(&self) -> PyResult<String> {
        Ok(self.driven()?.look(asked::privacy_spent))
    }

    /// What was spent on all tasks together, as JSON.
    fn privacy_lifetime(&self) -> PyResult<String> {
        Ok(self.driven()?.look(asked::privacy_lifetime))
    }

    /// What was refused, and why, as JSON.
    fn refusals(&self) -> PyResult<String> {
        Ok(self.driven()?.look(asked::refusals))
    }

    /// What was sent and received: today, then ever.
    fn data_use(&self) -> PyResult<[u64; 4]> {
        Ok(self.driven()?.look(asked::data_use))
    }

    fn model(&self, py: Python<'_>, task: &str) -> PyResult<Option<Model>> {
        let driven = self.driven()?;
        let found = py.detach(|| driven.model_of(task)).map_err(|error| JournalError::new_err(error.to_string()))?;
        Ok(found.map(Model::new))
    }

    /// Names of the tasks that there is a model of, the latest last.
    fn models(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let driven = self.driven()?;
        let found = py.detach(|| driven.models()).map_err(|error| JournalError::new_err(error.to_string()))?;
        Ok(asked::names(found))
    }
}
