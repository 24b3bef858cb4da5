//! The ready runner: a participant on a thread of its own, whose jobs the app asks for.
//!
//! For apps that would rather ask than be called, and the base of the SDKs for other languages. The runner starts one
//! thread with a tokio runtime; an app with a runtime of its own, or without threads to spare, polls a
//! [`Participant`] instead.
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
mod called;
mod handed_over;
mod http_client;
mod job;
mod key_store;
mod kind;
mod manner;
mod options;
#[cfg(feature = "models")]
mod ready;
mod said;
mod stored;
mod update;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub use self::called::Called;
use self::handed_over::HandedOver;
pub use self::http_client::{Exchange, HttpClient, OutgoingRequest, OverClient};
pub use self::job::{Answer, Job, Overdue};
pub use self::key_store::KeyStore;
pub use self::kind::Kind;
pub use self::manner::{Abilities, Manner};
pub use self::options::Options;
#[cfg(feature = "models")]
pub use self::ready::{labelled, train_ready};
pub use self::said::End;
use self::said::{Ending, Said, Switches};
pub use self::update::{UpdateError, check_update, checked_rows};
use crate::conditions::{Conditions, DeviceState, Readiness};
use crate::participant::builder::Report;
use crate::participant::{BuildError, Builder, Participant, ParticipantError, Progress};

/// How often a participant looks whether its pause is over, although it is told.
const PAUSE_CHECK: Duration = Duration::from_secs(60);
/// Time for a training that nobody stopped, once the participant has ended.
const LAST_WORK: Duration = Duration::from_secs(1);

/// What an app that asked for work got.
#[derive(Debug)]
pub enum Next {
    /// A model to train, or an analysis to give rows for.
    Job(Box<Job>),
    /// Nothing yet: ask again.
    Waiting,
    /// The participant has ended; asking again gets the same.
    Ended(End),
}

/// Sent to the participant's thread.
enum Ask {
    Do(Box<dyn FnOnce(&Participant) + Send>),
    LookAtConditions,
    Stop,
    /// Ends the thread of a participant that has ended.
    Leave,
}

/// A participant on a thread of its own. Dropping it stops the participant without waiting; [`Runner::close`] waits.
pub struct Runner {
    asks: UnboundedSender<Ask>,
    said: Mutex<Receiver<Said>>,
    ending: Arc<Ending>,
    switches: Arc<Switches>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The app's conditions, and its switch.
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
    /// Builds the participant and starts it. The builder needs everything but a trainer; one that it has is replaced.
    ///
    /// # Errors
    /// [`BuildError`], also if no thread can be had ([`BuildError::Thread`]).
    pub fn start(builder: Builder) -> Result<Self, BuildError> {
        Self::start_with(builder, Abilities::default())
    }

    /// The same for an app that can do more than train a model as a plan says.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_with(builder: Builder, abilities: Abilities) -> Result<Self, BuildError> {
        let switches = Arc::<Switches>::default();
        let (say, said) = channel();
        let (asks, asked) = unbounded_channel();
        let trainer = HandedOver::new(say.clone(), Arc::clone(&switches), abilities);
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
                // Why is on stderr; a participant that had ended before keeps its end.
                ends.put(Err(ParticipantError::Panicked));
                let _ = say.send(Said::Ended);
            }
            runtime.shutdown_timeout(LAST_WORK);
        });
        let thread = thread.map_err(|error| BuildError::Thread(error.to_string()))?;
        Ok(Self { asks, said: said.into(), ending, switches, thread: Some(thread).into() })
    }

    /// The next job, waiting for `limit` at most. A job that nobody waits for any more is skipped.
    ///
    /// Threads may ask at the same time; each job is given to one of them.
    pub fn next(&self, limit: Duration) -> Next {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(end) = self.end() {
            return Next::Ended(end);
        }
        match said.recv_timeout(limit) {
            Ok(Said::Job(job)) if job.answer.is_overdue() => Next::Waiting,
            Ok(Said::Job(job)) => Next::Job(job),
            Err(RecvTimeoutError::Timeout) => Next::Waiting,
            // A thread that is gone without a word has panicked.
            Ok(Said::Ended) | Err(RecvTimeoutError::Disconnected) => {
                Next::Ended(self.end().unwrap_or(Err(ParticipantError::Panicked)))
            }
        }
    }

    /// How the participant ended, once it has.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.ended_within(Duration::ZERO)
    }

    /// How the participant ended, waiting for `limit` at most. Who waits for a job meanwhile is not in the way.
    #[must_use]
    pub fn ended_within(&self, limit: Duration) -> Option<End> {
        self.ending.within(limit)
    }

    /// Asks the participant something, between two of its steps; also after its end. `None` once the runner is closed.
    pub fn ask<T: Send + 'static>(&self, question: impl FnOnce(&Participant) -> T + Send + 'static) -> Option<T> {
        let (answer, answered) = channel();
        let put = Box::new(move |participant: &Participant| drop(answer.send(question(participant))));
        self.asks.send(Ask::Do(put)).ok()?;
        answered.recv().ok()
    }

    /// Lets the participant rest, until [`Self::resume`]: it sends nothing. A job under way should pause
    /// ([`Checkpoints::should_pause`](crate::Checkpoints::should_pause)): once it has saved a checkpoint, or in ten seconds, it is taken back,
    /// and handed out again when it goes on, if its round still waits. If it has saved none by then, its round is given up, as is
    /// any other whose update is not made.
    pub fn pause(&self) {
        self.set_paused(true);
    }

    /// Ends a pause: the participant checks in again at once.
    pub fn resume(&self) {
        self.set_paused(false);
    }

    /// Has the participant look at the app's conditions now, because they have changed.
    pub fn conditions_changed(&self) {
        // A thread that is gone has nothing to give up.
        let _ = self.asks.send(Ask::LookAtConditions);
    }

    /// Reports the device's state to the builder's [`DeviceConditions`](crate::conditions::DeviceConditions), which are looked at
    /// at once. From now on this counts, not what the builder was given.
    pub fn set_device(&self, state: DeviceState) {
        *self.switches.device.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        self.conditions_changed();
    }

    fn set_paused(&self, paused: bool) {
        self.switches.paused.store(paused, Ordering::Relaxed);
        self.conditions_changed();
    }

    /// The number of training examples that the participant tells the coordinator from the next check-in on.
    pub fn set_examples(&self, examples: u64) {
        self.switches.examples.store(examples, Ordering::Relaxed);
    }

    /// Tells the participant to stop, and returns at once: [`Self::next`] says when it has.
    pub fn stop(&self) {
        // A thread that is gone has stopped.
        let _ = self.asks.send(Ask::Stop);
    }

    /// Stops the participant and waits for its end, a few seconds at most while a request is under way, and for its thread. Nothing
    /// answers what is asked afterwards.
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
            // Why it panicked is on stderr.
            let _ = thread.join();
        }
        end
    }
}

/// Runs the participant, and answers what is asked, until there is nobody to ask.
async fn attend(mut participant: Participant, mut asked: UnboundedReceiver<Ask>, say: &Sender<Said>, ending: &Ending) {
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
    // Nobody listens to a runner that was dropped.
    let _ = say.send(Said::Ended);
    while let Some(ask) = asked.recv().await {
        match ask {
            Ask::Do(question) => question(&participant),
            Ask::LookAtConditions | Ask::Stop => {}
            Ask::Leave => break,
        }
    }
}
