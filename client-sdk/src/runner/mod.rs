//! A participant on its own thread, from which the app takes jobs.
//!
//! This is the base of the SDKs for other languages, and suits apps that prefer polling to callbacks. The runner starts
//! one thread with a tokio runtime. An app with its own runtime, or without spare threads, polls a [`Participant`]
//! instead.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use client_sdk::{BuildError, Builder, Trained};
//! use client_sdk::runner::{Job, Next, Runner};
//!
//! # fn work(builder: Builder) -> Result<(), BuildError> {
//! let runner = Runner::start(builder)?; // a builder without a trainer
//! loop {
//!     match runner.next(Duration::from_secs(1)) {
//!         Next::Job(job) => {
//!             let Job { mut parameters, training, answer, .. } = *job;
//!             parameters.values_mut()[0] += training.plan.learning_rate as f32; // train
//!             let _ = answer.finish(Trained { parameters, examples: 10, metrics: vec![] });
//!         }
//!         Next::Waiting => {}
//!         Next::Ended(outcome) => break println!("{outcome:?}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```

pub mod asked;
mod callback_trainer;
mod http_client;
mod jobs;
mod key_store;
mod kind;
mod options;
mod queue_trainer;
#[cfg(feature = "models")]
mod ready;
mod runner_message;
mod stored;
mod withdrawal;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub use self::callback_trainer::CallbackTrainer;
pub use self::http_client::{Exchange, HttpClient, OutgoingRequest, OverClient};
pub use self::jobs::constraints::{Capabilities, JobConstraints};
pub use self::jobs::job::{Answer, Job, Overdue};
pub use self::jobs::update::{UpdateError, check_update, checked_rows};
pub use self::key_store::KeyStore;
pub use self::kind::Kind;
pub use self::options::Options;
use self::queue_trainer::QueueTrainer;
#[cfg(feature = "models")]
pub use self::ready::{labelled, named, train_ready};
pub use self::runner_message::End;
use self::runner_message::{Ending, RunnerMessage, Switches};
pub use self::withdrawal::withdraw;
use crate::conditions::{Conditions, DeviceState, Readiness};
use crate::participant::{BuildError, Builder, Participant, ParticipantError, Progress, Report};

/// Interval at which a paused participant checks for the end of the pause, in addition to notifications.
const PAUSE_CHECK: Duration = Duration::from_secs(60);
/// Time limit of an unfinished training after the participant has ended.
const LAST_WORK: Duration = Duration::from_secs(1);

/// The result of waiting for a job.
#[derive(Debug)]
pub enum Next {
    /// A model to train, or an analysis to answer with rows.
    Job(Box<Job>),
    /// The limit has passed without a job; call again.
    Waiting,
    /// The participant has ended; further calls return the same.
    Ended(End),
}

/// A command to the participant's thread.
enum Ask {
    Do(Box<dyn FnOnce(&Participant) + Send>),
    LookAtConditions,
    Stop,
    /// Ends the thread of a participant that has ended.
    Leave,
}

/// A participant on its own thread. Dropping it stops the participant without waiting; [`Runner::close`] waits.
pub struct Runner {
    asks: UnboundedSender<Ask>,
    said: Mutex<Receiver<RunnerMessage>>,
    ending: Arc<Ending>,
    switches: Arc<Switches>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The app's device conditions and its pause switch.
struct Pausable {
    switches: Arc<Switches>,
    conditions: Box<dyn Conditions>,
}

impl Conditions for Pausable {
    fn ready(&self) -> Readiness {
        if self.switches.paused.load(Ordering::Relaxed) {
            return Readiness::NotReady { ask_again: PAUSE_CHECK };
        }
        self.conditions.ready()
    }
}

impl Runner {
    /// Builds and starts the participant. Replaces a trainer of the builder.
    ///
    /// # Errors
    /// [`BuildError`], also if the thread cannot be started ([`BuildError::Thread`]).
    pub fn start(builder: Builder) -> Result<Self, BuildError> {
        Self::start_with(builder, Capabilities::default())
    }

    /// The same for an app with capabilities beyond training by a plan.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_with(builder: Builder, capabilities: Capabilities) -> Result<Self, BuildError> {
        let switches = Arc::<Switches>::default();
        let (say, said) = channel();
        let (asks, asked) = unbounded_channel();
        let trainer = QueueTrainer::new(say.clone(), Arc::clone(&switches), capabilities);
        let pausable = |conditions| Pausable { switches: Arc::clone(&switches), conditions };
        let state = Arc::clone(&switches);
        let reported =
            move |own: Report| move || state.device.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or_else(&own);
        let participant = builder.trainer(trainer).map_conditions(pausable).map_device(reported).build()?;
        let thread = std::thread::Builder::new().name("tributary".to_owned());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| BuildError::Thread(error.to_string()))?;
        let ending = Arc::<Ending>::default();
        let ends = Arc::clone(&ending);
        let thread = thread.spawn(move || {
            let attended = catch_unwind(AssertUnwindSafe(|| {
                runtime.block_on(attend(participant, asked, &say, &ends));
            }));
            if attended.is_err() {
                // The reason is on stderr. A participant that has already ended keeps its outcome.
                ends.put(Err(ParticipantError::Panicked));
                let _ = say.send(RunnerMessage::Ended);
            }
            runtime.shutdown_timeout(LAST_WORK);
        });
        let thread = thread.map_err(|error| BuildError::Thread(error.to_string()))?;
        Ok(Self { asks, said: said.into(), ending, switches, thread: Some(thread).into() })
    }

    /// The next job, after waiting for at most `limit`. Skips cancelled jobs.
    ///
    /// Several threads may wait; each job goes to one of them.
    pub fn next(&self, limit: Duration) -> Next {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(end) = self.end() {
            return Next::Ended(end);
        }
        match said.recv_timeout(limit) {
            Ok(RunnerMessage::Job(job)) if job.answer.is_overdue() => Next::Waiting,
            Ok(RunnerMessage::Job(job)) => Next::Job(job),
            Err(RecvTimeoutError::Timeout) => Next::Waiting,
            // The thread ended without an outcome, so it has panicked.
            Ok(RunnerMessage::Ended) | Err(RecvTimeoutError::Disconnected) => {
                Next::Ended(self.end().unwrap_or(Err(ParticipantError::Panicked)))
            }
        }
    }

    /// The outcome, once the participant has ended.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.ended_within(Duration::ZERO)
    }

    /// The outcome, after waiting for at most `limit`. Does not block threads that wait for a job.
    #[must_use]
    pub fn ended_within(&self, limit: Duration) -> Option<End> {
        self.ending.within(limit)
    }

    /// Runs a query on the participant, between two of its steps; also after its end. `None` once the runner is closed.
    pub fn ask<T: Send + 'static>(&self, question: impl FnOnce(&Participant) -> T + Send + 'static) -> Option<T> {
        let (answer, answered) = channel();
        let put = Box::new(move |participant: &Participant| drop(answer.send(question(participant))));
        self.asks.send(Ask::Do(put)).ok()?;
        answered.recv().ok()
    }

    /// Pauses the participant until [`Self::resume`] and stops its requests. A job in progress should pause
    /// ([`Checkpoints::should_pause`](crate::Checkpoints::should_pause)). Once it has saved a checkpoint, or after ten
    /// seconds, it is withdrawn, and issued again after the pause if its round still waits. Without a checkpoint its
    /// round is abandoned, as is any other round without a finished update.
    pub fn pause(&self) {
        self.set_paused(true);
    }

    /// Ends a pause: the participant checks in immediately.
    pub fn resume(&self) {
        self.set_paused(false);
    }

    /// Makes the participant check the app's conditions now, after a change.
    pub fn conditions_changed(&self) {
        // Fails only if the thread has ended, and its work with it.
        let _ = self.asks.send(Ask::LookAtConditions);
    }

    /// Reports the device state to the builder's [`DeviceConditions`](crate::conditions::DeviceConditions), which are
    /// checked immediately. This state replaces the builder's callback from now on.
    pub fn set_device(&self, state: DeviceState) {
        *self.switches.device.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        self.conditions_changed();
    }

    fn set_paused(&self, paused: bool) {
        self.switches.paused.store(paused, Ordering::Relaxed);
        self.conditions_changed();
    }

    /// The number of training examples that the participant reports from the next check-in on.
    pub fn set_examples(&self, examples: u64) {
        self.switches.examples.store(examples, Ordering::Relaxed);
    }

    /// Stops the participant without waiting. [`Self::next`] returns its outcome.
    pub fn stop(&self) {
        // The thread has already ended.
        let _ = self.asks.send(Ask::Stop);
    }

    /// Stops the participant and waits for its end (at most a few seconds during a request) and for its thread. Later
    /// queries return empty results.
    pub fn close(&self) -> End {
        self.stop();
        let end = loop {
            if let Some(end) = self.ended_within(Duration::from_secs(1)) {
                break end;
            }
        };
        let _ = self.asks.send(Ask::Leave);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The reason of the panic is on stderr.
            let _ = thread.join();
        }
        end
    }
}

/// Runs the participant and its queries until the runner is gone.
async fn attend(
    mut participant: Participant,
    mut asked: UnboundedReceiver<Ask>,
    say: &Sender<RunnerMessage>,
    ending: &Ending,
) {
    let long = Duration::from_secs(3600);
    let end = loop {
        tokio::select! {
            biased;
            ask = asked.recv() => match ask {
                Some(Ask::Do(question)) => question(&participant),
                Some(Ask::LookAtConditions) => participant.conditions_changed(),
                Some(Ask::Stop | Ask::Leave) | None => break participant.run(std::future::ready(())).await,
            },
            progress = participant.poll(long) => if let Progress::Finished(end) = progress {
                break end;
            }
        }
    };
    ending.put(end);
    // A dropped runner does not receive the outcome.
    let _ = say.send(RunnerMessage::Ended);
    while let Some(ask) = asked.recv().await {
        match ask {
            Ask::Do(question) => question(&participant),
            Ask::LookAtConditions | Ask::Stop => {}
            Ask::Leave => break,
        }
    }
}
