//! A participant on a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::participant::machine::Machine;
use client_sdk::runner::{self, Capabilities, OverClient, Runner};
use client_sdk::{Builder, Outcome};

use crate::app::callback::{call, refuse_in_callback};
use crate::app::callbacks::{Callbacks, Kept};
use crate::app::conditions::{self, DataUse, HeldUp};
use crate::app::http_client::Own;
use crate::asked;
use crate::error::{TributaryError, of_this_process};
use crate::job::Job;
use crate::model::Model;
use crate::options;
use crate::slot::Slot;

/// Longest wait in which a call cannot notice that another one closes the participant.
const SLICE: Duration = Duration::from_millis(100);

/// A participant on a thread of its own. All methods may be called from any thread; those that wait (`next`, `id`,
/// `model`, `models`, `privacy_spent`, `privacy_lifetime`, `refusals`, `held_up`, `data_use`, `close`) not from a callback.
///
/// Dropped, it stops without waiting; the journal knows how to go on.
#[cfg_attr(feature = "uniffi", derive(uniffi::Object))]
pub struct Participant {
    slot: Arc<Slot>,
    /// The process that has the threads: a forked child lacks them.
    process: u32,
}

/// Result of a request for work.
#[cfg_attr(feature = "uniffi", derive(uniffi::Enum))]
pub enum Next {
    /// A model to train.
    Job {
        /// Takes one answer.
        job: Arc<Job>,
    },
    /// The limit has passed without a job: call again.
    Waiting,
    /// The participant has ended; asking again gets the same.
    Ended {
        /// Why.
        end: End,
    },
}

/// How a participant ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Enum))]
pub enum End {
    /// The task it takes part in is over.
    TaskOver,
    /// The app stopped it.
    Stopped,
}

impl Participant {
    fn runner(&self) -> Result<Arc<Runner>, TributaryError> {
        of_this_process(self.process)?;
        self.slot.runner().ok_or(TributaryError::Closed)
    }

    /// Does something with the runner.
    fn with<T>(&self, work: impl FnOnce(&Runner) -> T) -> Result<T, TributaryError> {
        self.runner().map(|runner| work(&runner))
    }

    /// Sends the participant a query, which its own thread answers.
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&client_sdk::Participant) -> T + Send + 'static,
    ) -> Result<T, TributaryError> {
        refuse_in_callback()?;
        self.with(|runner| runner.ask(question))?.ok_or(TributaryError::Closed)
    }

    /// The same for a query of the state machine.
    fn look_at<T: Send + 'static>(&self, question: fn(&Machine) -> T) -> Result<T, TributaryError> {
        self.ask(move |running| question(running.machine()))
    }

    /// The next slice of at most `limit`.
    fn look(&self, limit: Duration) -> Result<Next, TributaryError> {
        match self.with(|runner| runner.next(limit))? {
            runner::Next::Job(job) => Ok(Next::Job { job: Arc::new(Job::new(*job, Some(Arc::downgrade(&self.slot)))) }),
            runner::Next::Waiting => Ok(Next::Waiting),
            runner::Next::Ended(Ok(Outcome::TaskOver { .. })) => Ok(Next::Ended { end: End::TaskOver }),
            runner::Next::Ended(Ok(Outcome::Stopped)) => Ok(Next::Ended { end: End::Stopped }),
            runner::Next::Ended(Err(error)) => Err((&error).into()),
        }
    }
}

#[cfg_attr(feature = "uniffi", uniffi::export)]
impl Participant {
    /// Starts a participant with the options of docs/OPTIONS.md (`client_sdk::runner::Options`) as JSON, in which
    /// `server`, `journal` and, at first, `ca_pem` and `token` must be there. Requests begin after it has returned.
    ///
    /// # Errors
    /// [`TributaryError::Configuration`], [`TributaryError::Enrollment`], [`TributaryError::Journal`].
    #[cfg_attr(feature = "uniffi", uniffi::constructor)]
    pub fn start(options: String, callbacks: Callbacks) -> Result<Arc<Self>, TributaryError> {
        let (builder, examples, capabilities) = builder(options, callbacks, DeviceReports::ByCallback)?;
        let runner = Runner::start_with(builder, capabilities).map_err(|error| TributaryError::from(&error))?;
        runner.set_examples(examples);
        Ok(Arc::new(Self { slot: Arc::new(Slot::new(runner)), process: std::process::id() }))
    }

    /// The next job, waiting for at most so many milliseconds. Threads may call concurrently; each job goes to one.
    ///
    /// # Errors
    /// The reason of an early end; [`TributaryError::Closed`], also if another thread closes it.
    pub fn next(&self, limit_ms: u64) -> Result<Next, TributaryError> {
        refuse_in_callback()?;
        let mut left = Duration::from_millis(limit_ms);
        loop {
            let slice = left.min(SLICE);
            let next = self.look(slice)?;
            left = left.saturating_sub(slice);
            if left.is_zero() || !matches!(next, Next::Waiting) {
                return Ok(next);
            }
        }
    }

    /// Pauses, and stops requests until [`Self::resume`]. A job under way should pause: once it has saved a checkpoint,
    /// or in ten seconds, it is withdrawn, and comes again if its round still waits. Without a checkpoint by then its
    /// round is given up, as is any other without a finished update.
    ///
    /// # Errors
    /// [`TributaryError::Closed`].
    pub fn pause(&self) -> Result<(), TributaryError> {
        self.with(Runner::pause)
    }

    /// Ends a pause.
    ///
    /// # Errors
    /// [`TributaryError::Closed`].
    pub fn resume(&self) -> Result<(), TributaryError> {
        self.with(Runner::resume)
    }

    /// Makes the participant query the device's state now ([`Callbacks::conditions`]).
    ///
    /// # Errors
    /// [`TributaryError::Closed`].
    pub fn conditions_changed(&self) -> Result<(), TributaryError> {
        self.with(Runner::conditions_changed)
    }

    /// Sets the number of training examples that is reported to the coordinator; a finished job sets it, too.
    ///
    /// # Errors
    /// [`TributaryError::Closed`].
    pub fn set_examples(&self, examples: u64) -> Result<(), TributaryError> {
        self.with(|runner| runner.set_examples(examples))
    }

    /// The participant's id, once it is enrolled.
    ///
    /// # Errors
    /// [`TributaryError::Closed`].
    pub fn id(&self) -> Result<Option<String>, TributaryError> {
        self.look_at(asked::id)
    }

    /// The spending on each private task, from the participant's own ledger, as a JSON array.
    ///
    /// # Errors
    /// [`TributaryError::Closed`].
    pub fn privacy_spent(&self) -> Result<String, TributaryError> {
        self.look_at(asked::privacy_spent)
    }

    /// The spending on all tasks together, and the limit on it, as a JSON object.
    ///
    /// # Errors
    /// [`TributaryError::Closed`].
    pub fn privacy_lifetime(&self) -> Result<String, TributaryError> {
        self.look_at(asked::privacy_lifetime)
    }

    /// The participant's refusals and their reasons as a JSON array, the latest last. Each of the last fifty reasons
    /// has the attempt that was refused last (`task`, `round`, `attempt`), `code` (sent to the coordinator, or null),
    /// `reason` (in words, which stay on the device), `at_ms` (since 1970) and `times`. From the journal, so refusals
    /// of earlier processes are included.
    ///
    /// # Errors
    /// [`TributaryError::Closed`].
    pub fn refusals(&self) -> Result<String, TributaryError> {
        self.look_at(asked::refusals)
    }

    /// The model of a task for use on this device. If the task personalizes, this is the device's own model. Otherwise
    /// it is the verified published version that the device's last round began with, or the last version once the task
    /// is over. Null before the first model. It is read from the journal, so it needs no network, and outlives the
    /// participant. While the participant is stopped, `load_model` does the same.
    ///
    /// # Errors
    /// [`TributaryError::Journal`], [`TributaryError::Closed`].
    pub fn model(&self, task: String) -> Result<Option<Arc<Model>>, TributaryError> {
        Ok(self.ask(move |running| running.model_of(&task))??.map(Model::new))
    }

    /// Names of the tasks that there is a model of, the latest last.
    ///
    /// # Errors
    /// [`TributaryError::Journal`], [`TributaryError::Closed`].
    pub fn models(&self) -> Result<Vec<String>, TributaryError> {
        self.ask(client_sdk::Participant::models)?.map(asked::names).map_err(Into::into)
    }

    /// The condition of the device that holds it up now; null if all hold.
    ///
    /// # Errors
    /// [`TributaryError::Closed`].
    pub fn held_up(&self) -> Result<Option<HeldUp>, TributaryError> {
        self.look_at(asked::held_up)
    }

    /// Bytes sent and received.
    ///
    /// # Errors
    /// [`TributaryError::Closed`].
    pub fn data_use(&self) -> Result<DataUse, TributaryError> {
        self.look_at(asked::data_use)
    }

    /// Requests its stop; `next` returns the end once it has stopped.
    ///
    /// # Errors
    /// [`TributaryError::Closed`].
    pub fn stop(&self) -> Result<(), TributaryError> {
        self.with(Runner::stop)
    }

    /// Stops it and waits for its end, for at most so many milliseconds; a few seconds are enough while a request is
    /// under way. Callbacks end before this returns true. Returns whether it has ended in time: if not, a callback is
    /// still running, and its thread is left behind.
    ///
    /// # Errors
    /// [`TributaryError::Closed`] if it was closed before.
    pub fn close(&self, limit_ms: u64) -> Result<bool, TributaryError> {
        refuse_in_callback()?;
        let runner = self.runner()?;
        runner.stop();
        // `next` returns the reason for the end; a caller that closes does not need it.
        let has_ended = runner.ended_within(Duration::from_millis(limit_ms)).is_some();
        self.slot.take().ok_or(TributaryError::Closed)?;
        if has_ended {
            let _ = runner.close();
        }
        Ok(has_ended)
    }
}

/// Withdraws this device's participant while it is stopped: the coordinator revokes it for good. Returns the
/// coordinator's signed statement about the rounds and versions that contain its updates, as a JSON object of
/// `statement` and `signature`, which have been verified: store it as evidence. `options` and `callbacks` are those of
/// `Participant.start`.
///
/// Waits for the coordinator, for some minutes at most. After an error, and for another statement, it may be repeated.
/// The journal stays as it is; delete it to delete the device's own models.
///
/// # Errors
/// [`TributaryError::Configuration`], [`TributaryError::Journal`] (also while a participant has the journal),
/// [`TributaryError::Enrollment`], [`TributaryError::Failed`], [`TributaryError::InCallback`].
#[cfg_attr(feature = "uniffi", uniffi::export)]
pub fn withdraw(options: String, callbacks: Callbacks) -> Result<String, TributaryError> {
    refuse_in_callback()?;
    // No device state is needed to withdraw.
    let (builder, ..) = builder(options, callbacks, DeviceReports::WithTicks)?;
    let signed = client_sdk::runner::withdraw(builder).map_err(|error| TributaryError::from(&error))?;
    serde_json::to_string(&signed).map_err(|error| TributaryError::Defect(error.to_string()))
}

/// How the app reports the device's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceReports {
    /// By a callback, if it gives one.
    ByCallback,
    /// As an argument of each tick, even without a callback.
    WithTicks,
}

/// The app's settings, callbacks, number of training examples and training capabilities.
pub(crate) fn builder(
    options: String,
    callbacks: Callbacks,
    reports: DeviceReports,
) -> Result<(Builder, u64, Capabilities), TributaryError> {
    let options = options::read(options)?;
    let (examples, capabilities) = (options.examples, options.capabilities());
    let Callbacks { conditions, key_store, events, http_client } = callbacks;
    let is_told = reports == DeviceReports::WithTicks || conditions.is_some();
    let policy = conditions::policy(options.device_conditions, is_told)?;
    if cfg!(not(feature = "https")) && http_client.is_none() {
        let text = "this library has no HTTPS of its own: give `http_client` (in C `begin_request`)".to_owned();
        return Err(TributaryError::Configuration(text));
    }
    let transport = http_client.map(|client| options.transport(OverClient(Own(client)))).transpose();
    let transport = transport.map_err(|error| TributaryError::from(&error))?;
    let builder = match key_store {
        Some(keys) => options.into_builder_with_keys(Arc::new(Kept(keys))),
        None => options.into_builder(),
    };
    let builder = builder
        .map_err(|error| TributaryError::from(&error))?
        .given(transport, Builder::transport)
        .given(conditions, |builder, conditions| {
            builder.device_conditions(policy, move || conditions::ask(&*conditions))
        })
        .given(events, |builder, events| {
            builder.on_event(move |event| {
                // Events are for information only: an error of the listener is ignored.
                let _ = call(|| events.on_event(event.name().to_owned(), event.data().to_string()));
            })
        });
    Ok((builder, examples, capabilities))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::callback::CallbackError;
    use crate::app::callbacks::KeyStore;

    /// An empty store whose saves fail.
    struct Empty;

    impl KeyStore for Empty {
        fn load(&self, _: String) -> Result<Option<Vec<u8>>, CallbackError> {
            Ok(None)
        }

        fn save(&self, _: String, _: Vec<u8>) -> Result<(), CallbackError> {
            Err(CallbackError::Failed { reason: "it is full".to_owned() })
        }
    }

    #[test]
    fn settings_that_make_no_participant_are_told_by_their_type() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal");
        let start = |more: &str, callbacks| {
            let options = format!(r#"{{ "server": "https://localhost:1", "journal": {journal:?}{more} }}"#);
            Participant::start(options, callbacks).map(|_| ()).unwrap_err()
        };
        for (more, word) in [
            ("", "ca_pem"),
            (r#", "cohort": 3"#, "unknown field `cohort`"),
            (r#", "ca_pem": "none""#, "certificate"),
            (r#", "secure_aggregation": { "min_cohort": "many" }"#, "invalid type"),
            (r#", "device_conditions": { "charged": true }"#, "unknown field `charged`"),
            (r#", "device_conditions": {}"#, "nobody tells"),
        ] {
            let error = start(more, Callbacks::default());
            assert!(matches!(&error, TributaryError::Configuration(text) if text.contains(word)), "{error:?}");
        }
        let full = || Callbacks { key_store: Some(Arc::new(Empty)), ..Callbacks::default() };
        let error = start(r#", "journal_key": "elsewhere.key""#, full());
        assert!(matches!(&error, TributaryError::Configuration(text) if text.contains("journal_key")), "{error:?}");
        let error = start("", full());
        assert!(matches!(&error, TributaryError::Journal(text) if text.contains("it is full")), "{error:?}");
    }
}
