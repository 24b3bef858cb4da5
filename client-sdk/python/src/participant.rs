//! A participant on a thread of its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use client_sdk::participant::machine::Machine;
use client_sdk::runner::{Capabilities, Next, Options, Runner};
use client_sdk::{BuildError, Builder, DeviceState, Event};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::asked;
use crate::errors::{self, ConfigurationError, JournalError};
use crate::job::Job;
use crate::model::Model;

/// Longest wait between two looks at Python's signals.
const SIGNALS: Duration = Duration::from_millis(100);

/// A participant on a thread of its own: `tributary.Participant` wraps it.
#[pyclass(frozen, module = "tributary._tributary")]
pub(crate) struct Participant {
    /// `None` after [`Self::close`]. A call holds the lock only to clone the value, so that a call waiting for a callback does not
    /// block a close.
    runner: RwLock<Option<Arc<Runner>>>,
    /// One asker at a time, so that the lock on the interpreter is never waited for with another in hand.
    asking: Mutex<()>,
    /// The process that has the threads: a child that was forked has none of them.
    process: u32,
}

/// What was asked for.
#[derive(IntoPyObject)]
enum Found<'py> {
    Job(Bound<'py, Job>),
    Ended(Bound<'py, PyString>),
}

impl Participant {
    fn runner(&self) -> Option<Arc<Runner>> {
        self.runner.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Works with the runner, the interpreter's lock released.
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Runner) -> T + Send) -> PyResult<T> {
        errors::of_this_process(self.process)?;
        let done = py.detach(|| self.runner().map(|runner| work(&runner)));
        done.ok_or_else(|| errors::closed("this participant was closed"))
    }

    /// Sends the participant a query, which its own thread answers.
    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&client_sdk::Participant) -> T + Send + 'static,
    ) -> PyResult<T> {
        let answer = self.with(py, |runner| runner.ask(question))?;
        answer.ok_or_else(|| errors::closed("this participant was closed"))
    }

    /// The same of what decides in it.
    fn look_at<T: Send + 'static>(&self, py: Python<'_>, question: fn(&Machine) -> T) -> PyResult<T> {
        self.ask(py, move |running| question(running.machine()))
    }

    fn asking(&self) -> MutexGuard<'_, ()> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Participant {
    /// Starts with the options as JSON. `on_event` is called with a name, fields as JSON and a line for a person or
    /// `None`, from the participant's thread.
    #[new]
    #[pyo3(signature = (options, on_event = None))]
    fn new(py: Python<'_>, options: &str, on_event: Option<Py<PyAny>>) -> PyResult<Self> {
        let (runner, examples) = builder(py, options, on_event, Runner::start_with)?;
        runner.set_examples(examples);
        Ok(Self { runner: Some(Arc::new(runner)).into(), asking: Mutex::default(), process: std::process::id() })
    }

    /// The next job within so many seconds; `None` if there is none; how the participant ended, as a text, once it has.
    fn next<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Option<Found<'py>>> {
        let mut left = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        loop {
            let slice = left.min(SIGNALS);
            let next = self.with(py, |runner| {
                let _one = self.asking();
                runner.next(slice)
            })?;
            match next {
                Next::Job(job) => return Ok(Some(Found::Job(Bound::new(py, Job::new(*job))?))),
                Next::Ended(end) => {
                    return errors::outcome(&end).map(|outcome| Some(Found::Ended(PyString::new(py, outcome))));
                }
                Next::Waiting => py.check_signals()?,
            }
            left = left.saturating_sub(slice);
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// The participant's id, once it is enrolled.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.look_at(py, asked::id)
    }

    /// What was spent on each task, as JSON.
    fn privacy_spent(&self, py: Python<'_>) -> PyResult<String> {
        self.look_at(py, asked::privacy_spent)
    }

    /// What was spent on all tasks together, as JSON.
    fn privacy_lifetime(&self, py: Python<'_>) -> PyResult<String> {
        self.look_at(py, asked::privacy_lifetime)
    }

    /// What was refused, and why, as JSON.
    fn refusals(&self, py: Python<'_>) -> PyResult<String> {
        self.look_at(py, asked::refusals)
    }

    /// The model of the task of this name; also offline.
    fn model(&self, py: Python<'_>, task: String) -> PyResult<Option<Model>> {
        let found = self.ask(py, move |running| running.model_of(&task))?;
        Ok(found.map_err(|error| JournalError::new_err(error.to_string()))?.map(Model::new))
    }

    /// Names of the tasks that there is a model of, the latest last.
    fn models(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let found = self.ask(py, client_sdk::Participant::models)?;
        Ok(asked::names(found.map_err(|error| JournalError::new_err(error.to_string()))?))
    }

    fn set_examples(&self, py: Python<'_>, examples: u64) -> PyResult<()> {
        self.with(py, |runner| runner.set_examples(examples))
    }

    /// Reports the device's state, as JSON.
    fn set_device(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let state = device(state)?;
        self.with(py, |runner| runner.set_device(state))
    }

    /// Name and description of the condition that holds it up.
    fn held_up(&self, py: Python<'_>) -> PyResult<Option<(&'static str, String)>> {
        self.look_at(py, asked::held_up)
    }

    /// What was sent and received: today, then ever.
    fn data_use(&self, py: Python<'_>) -> PyResult<[u64; 4]> {
        self.look_at(py, asked::data_use)
    }

    fn pause(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Runner::pause)
    }

    fn resume(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Runner::resume)
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Runner::stop)
    }

    /// Stops and waits for the end, for so many seconds; a second call does nothing. Returns whether it has ended in time.
    fn close(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        if std::process::id() != self.process {
            return Ok(true);
        }
        let Some(runner) = py.detach(|| self.runner()) else { return Ok(true) };
        runner.stop();
        let mut left = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let has_ended = loop {
            let slice = left.min(SIGNALS);
            // `next` returns the reason for the end; a caller that closes does not need it.
            if py.detach(|| runner.ended_within(slice)).is_some() {
                break true;
            }
            left = left.saturating_sub(slice);
            if left.is_zero() {
                break false;
            }
            py.check_signals()?;
        };
        py.detach(|| {
            drop(self.runner.write().unwrap_or_else(PoisonError::into_inner).take());
            // A thread that does not end is left behind.
            if has_ended {
                let _ = runner.close();
            }
        });
        Ok(has_ended)
    }
}

/// Makes something of the options as JSON, and of a callable for events, with what the app's training can do; also returns the number of
/// training examples.
pub(crate) fn builder<T: Send>(
    py: Python<'_>,
    options: &str,
    on_event: Option<Py<PyAny>>,
    make: impl FnOnce(Builder, Capabilities) -> Result<T, BuildError> + Send,
) -> PyResult<(T, u64)> {
    let options = self::options(options)?;
    let (examples, capabilities) = (options.examples, options.capabilities());
    let made = py.detach(|| {
        let builder = options
            .into_builder()?
            .given(on_event, |builder, callable| builder.on_event(move |event| tell(&callable, event)));
        make(builder, capabilities)
    });
    Ok((made.map_err(|error| errors::build(&error))?, examples))
}

/// Reads the options.
pub(crate) fn options(json: &str) -> PyResult<Options> {
    serde_json::from_str(json).map_err(|error| {
        // Omits "at line 1 column 9": the app's author never sees that line.
        let text = error.to_string();
        ConfigurationError::new_err(text.split(" at line ").next().unwrap_or_default().to_owned())
    })
}

/// Reads the device's state.
pub(crate) fn device(state: &str) -> PyResult<DeviceState> {
    serde_json::from_str(state).map_err(|error| ConfigurationError::new_err(error.to_string()))
}

/// Calls Python with an event, unless the interpreter shuts down. What it raises is printed as Python does for callbacks, and changes
/// nothing.
fn tell(callable: &Py<PyAny>, event: &Event) {
    Python::try_attach(|py| {
        if let Err(error) = callable.call1(py, (event.name(), event.data().to_string(), event.line())) {
            error.write_unraisable(py, Some(callable.bind(py)));
        }
    });
}
