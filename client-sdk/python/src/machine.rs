//! A participant that Python drives.

use std::time::Duration;

use client_sdk::clock::{Clock as _, Now, SystemClock};
use client_sdk::participant::machine::Machine as Deciding;
use client_sdk::participant::{Driven, Step};
use client_sdk::runner::Called;
use pyo3::prelude::*;

use crate::errors::{self, JournalError};
use crate::job::Job;
use crate::model::Model;
use crate::participant::{builder, device};

/// A participant that its caller drives: `tributary.Machine` wraps it.
#[pyclass(frozen, module = "tributary._tributary")]
pub(crate) struct Machine {
    driven: Driven,
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
        let (driven, _) = builder(py, options, on_event, |builder| builder.build_driven())?;
        Ok(Self { driven, clock: SystemClock::new(), process: std::process::id() })
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
            let mut trainer = Called::new(0, |job| {
                raised = Python::attach(|py| {
                    let job = Bound::new(py, Job::new(job))?;
                    let done = train.call1(py, (&job,));
                    // Not later: nobody waits for it any more.
                    let _ = job.get().give_up("the training returned without an answer");
                    done
                })
                .err();
            });
            driven.perform(&mut trainer)
        });
        raised.map_or(Ok(did), Err)
    }

    fn stop(&self) -> PyResult<()> {
        self.driven().map(Driven::stop)
    }

    /// The participant's id, once it is enrolled.
    #[getter]
    fn id(&self) -> PyResult<Option<String>> {
        let who = |machine: &Deciding| machine.identity().map(|identity| identity.certified.participant.to_string());
        Ok(self.driven()?.look(who))
    }

    /// Name and description of the condition that held it up at the last tick.
    fn held_up(&self) -> PyResult<Option<(&'static str, String)>> {
        Ok(self.driven()?.look(Deciding::held_up).map(|unmet| (unmet.name(), unmet.to_string())))
    }

    fn model(&self, py: Python<'_>, task: &str) -> PyResult<Option<Model>> {
        let driven = self.driven()?;
        let found = py.detach(|| driven.model_of(task)).map_err(|error| JournalError::new_err(error.to_string()))?;
        Ok(found.map(Model::new))
    }
}
