//! A participant that the app drives.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::clock::{Clock as _, Now, SystemClock};
use client_sdk::participant::{Driven, Step};
use client_sdk::runner::{CallbackTrainer, Capabilities};
use client_sdk::{DeviceState, Outcome};

use crate::app::callback::{CallbackError, call, refuse_in_callback, refuse_in_key_store};
use crate::app::callbacks::Callbacks;
use crate::app::conditions::{DataUse, HeldUp};
use crate::asked;
use crate::error::{TributaryError, of_this_process};
use crate::job::Job;
use crate::model::Model;
use crate::participant::{DeviceReports, End, builder};

/// Input of a tick.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Record))]
pub struct Circumstances {
    /// Milliseconds on a monotonic clock of the app, since a moment of its choice; null for the library's own clock.
    #[cfg_attr(feature = "uniffi", uniffi(default = None))]
    pub elapsed_ms: Option<u64>,
    /// The device's state, for `device_conditions` of the options; ignored without these.
    pub device: DeviceState,
    /// Number of training examples; null if it is as before.
    #[cfg_attr(feature = "uniffi", uniffi(default = None))]
    pub examples: Option<u64>,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Enum))]
pub enum Todo {
    /// Send a request and wait for its answer: `perform`.
    Send,
    /// Fetch a model: `perform`.
    Fetch,
    /// Train: `perform`, which takes as long as the app's training does.
    Train,
    /// Read or write the journal: `perform`.
    Journal,
    /// Another thread performs the step: tick again later, or when it has returned.
    Busy,
    /// Wait until this moment, on the clock of `elapsed_ms`.
    WaitUntil {
        /// In milliseconds.
        elapsed_ms: u64,
    },
    /// The participant has ended.
    Ended {
        /// Why.
        end: End,
    },
}

/// Trains on the thread that calls `perform`, if the last tick returned `Train`.
#[cfg_attr(feature = "uniffi", uniffi::export(with_foreign))]
pub trait Trainer: Send + Sync {
    /// Trains, and answers the job before it returns. Without an answer the round is given up, unless
    /// `job.should_pause()` and a checkpoint was saved, also by `job.train`: then it is called again with the same job,
    /// and resumes.
    ///
    /// # Errors
    /// [`CallbackError`]: the training failed, unless `job.train` was paused: then it is called again all the same.
    fn train(&self, job: Arc<Job>) -> Result<(), CallbackError>;
}

/// A participant that the app drives: `tick` returns the next step, and `perform` does it on the calling thread. It has
/// no thread of its own. All methods may be called from any thread, but `tick` and `perform` not from a callback. It
/// may be dropped at any moment: the journal allows it to continue.
#[cfg_attr(feature = "uniffi", derive(uniffi::Object))]
pub struct Machine {
    driven: Driven,
    capabilities: Capabilities,
    clock: SystemClock,
    /// The process that opened it: a child that was forked may find its locks held.
    process: u32,
}

#[cfg_attr(feature = "uniffi", uniffi::export)]
impl Machine {
    /// Opens the journal, without sending a request. The options are those of `Participant.start`. Of the callbacks the
    /// conditions must be left out, since the device's state comes with each tick. The ticking thread delivers events.
    /// An HTTP client of the app's own answers from another thread than the performing one, or in `begin`.
    ///
    /// # Errors
    /// [`TributaryError::Configuration`], [`TributaryError::Enrollment`], [`TributaryError::Journal`].
    #[cfg_attr(feature = "uniffi", uniffi::constructor)]
    pub fn open(options: String, callbacks: Callbacks) -> Result<Arc<Self>, TributaryError> {
        if callbacks.conditions.is_some() {
            let text = "the conditions of a machine come with each tick: leave out the callback".to_owned();
            return Err(TributaryError::Configuration(text));
        }
        let (builder, _, capabilities) = builder(options, callbacks, DeviceReports::WithTicks)?;
        let driven = builder.build_driven().map_err(|error| TributaryError::from(&error))?;
        Ok(Arc::new(Self { driven, capabilities, clock: SystemClock::new(), process: std::process::id() }))
    }

    /// Returns the next step, without waiting or starting a thread: it computes for microseconds, plus the time to hash
    /// and encode outgoing data. While a thread performs the step, the answer is `Busy`, unless the round is left:
    /// because its time is up, or the conditions have not held for ten seconds and a checkpoint is missing.
    ///
    /// # Errors
    /// The reason of an early end; [`TributaryError::InCallback`], [`TributaryError::OtherProcess`].
    pub fn tick(&self, circumstances: Circumstances) -> Result<Todo, TributaryError> {
        refuse_in_callback()?;
        let Circumstances { elapsed_ms, device, examples } = circumstances;
        let own = self.clock.now();
        let now = Now { elapsed: elapsed_ms.map_or(own.elapsed, Duration::from_millis), ..own };
        Ok(match self.driven()?.tick(now, device, examples) {
            Step::Send => Todo::Send,
            Step::Fetch => Todo::Fetch,
            Step::Train => Todo::Train,
            Step::Journal => Todo::Journal,
            Step::Busy => Todo::Busy,
            Step::WaitUntil(moment) => {
                // Not a moment too early.
                let rounded_up = moment.as_nanos().div_ceil(1_000_000);
                Todo::WaitUntil { elapsed_ms: u64::try_from(rounded_up).unwrap_or(u64::MAX) }
            }
            Step::Finished(Ok(Outcome::TaskOver { .. })) => Todo::Ended { end: End::TaskOver },
            Step::Finished(Ok(Outcome::Stopped)) => Todo::Ended { end: End::Stopped },
            Step::Finished(Err(error)) => return Err((&error).into()),
        })
    }

    /// Performs the step of the last tick on this thread, and waits for it; the next tick then returns the following
    /// step. The trainer is called if the step is `Train` and has a job. The evaluation of a task's last version lacks
    /// a job, since only a trainer in Rust measures it; here it has no metrics. Returns false if all steps are done or
    /// in progress on other threads. A training should pause after `training_slice_ms` of the options, which an app
    /// that saves checkpoints may do ([`Job::should_pause`]). While it sends or fetches, a helper thread may look up
    /// the server's name, or read the model's file.
    ///
    /// # Errors
    /// [`TributaryError::InCallback`], [`TributaryError::OtherProcess`].
    pub fn perform(&self, trainer: Arc<dyn Trainer>) -> Result<bool, TributaryError> {
        self.perform_with(|job| {
            // Why it failed is the app's own; the job that it dropped counts as failed.
            let answer = Arc::clone(&job);
            // A ready model reports a pause as an error.
            if let Err(error) = trainer.train(job)
                && !answer.is_paused()
            {
                let _ = answer.fail(error.to_string());
            }
        })
    }

    /// Has it end from the next tick on: an unfinished training is given up, and an update that waits to be sent stays in the journal.
    ///
    /// # Errors
    /// [`TributaryError::OtherProcess`].
    pub fn stop(&self) -> Result<(), TributaryError> {
        self.driven().map(Driven::stop)
    }

    /// The participant's id, once it is enrolled.
    ///
    /// # Errors
    /// [`TributaryError::OtherProcess`].
    pub fn id(&self) -> Result<Option<String>, TributaryError> {
        Ok(self.driven()?.look(asked::id))
    }

    /// The condition of the device that held it up at the last tick; null if all held.
    ///
    /// # Errors
    /// [`TributaryError::OtherProcess`].
    pub fn held_up(&self) -> Result<Option<HeldUp>, TributaryError> {
        Ok(self.driven()?.look(asked::held_up))
    }

    /// As `Participant.privacy_spent`.
    ///
    /// # Errors
    /// [`TributaryError::OtherProcess`].
    pub fn privacy_spent(&self) -> Result<String, TributaryError> {
        Ok(self.driven()?.look(asked::privacy_spent))
    }

    /// As `Participant.privacy_lifetime`.
    ///
    /// # Errors
    /// [`TributaryError::OtherProcess`].
    pub fn privacy_lifetime(&self) -> Result<String, TributaryError> {
        Ok(self.driven()?.look(asked::privacy_lifetime))
    }

    /// As `Participant.refusals`.
    ///
    /// # Errors
    /// [`TributaryError::OtherProcess`].
    pub fn refusals(&self) -> Result<String, TributaryError> {
        Ok(self.driven()?.look(asked::refusals))
    }

    /// Bytes sent and received, as of the last tick.
    ///
    /// # Errors
    /// [`TributaryError::OtherProcess`].
    pub fn data_use(&self) -> Result<DataUse, TributaryError> {
        Ok(self.driven()?.look(asked::data_use))
    }

    /// As `Participant.model`; it reads the journal on this thread.
    ///
    /// # Errors
    /// [`TributaryError::Journal`], [`TributaryError::OtherProcess`]; [`TributaryError::InCallback`] in the key store.
    pub fn model(&self, task: String) -> Result<Option<Arc<Model>>, TributaryError> {
        refuse_in_key_store()?;
        Ok(self.driven()?.model_of(&task)?.map(Model::new))
    }

    /// As `Participant.models`; it reads the journal on this thread.
    ///
    /// # Errors
    /// [`TributaryError::Journal`], [`TributaryError::OtherProcess`]; [`TributaryError::InCallback`] in the key store.
    pub fn models(&self) -> Result<Vec<String>, TributaryError> {
        refuse_in_key_store()?;
        Ok(asked::names(self.driven()?.models()?))
    }
}

impl Machine {
    fn driven(&self) -> Result<&Driven, TributaryError> {
        of_this_process(self.process).map(|()| &self.driven)
    }

    /// The same with a function.
    pub(crate) fn perform_with(&self, mut train: impl FnMut(Arc<Job>) + Send) -> Result<bool, TributaryError> {
        refuse_in_callback()?;
        let driven = self.driven()?;
        let trainer = CallbackTrainer::new(0, |job| {
            let job = Arc::new(Job::new(job, None));
            call(|| train(job));
        });
        Ok(driven.perform(&mut trainer.with_capabilities(self.capabilities.clone())))
    }
}

#[cfg(test)]
#[cfg(feature = "models")]
pub(crate) mod tests;
