//! A caller-driven participant that performs each action on the caller's thread. For SDKs of other languages, whose
//! apps lack a runtime for [`Participant`](crate::participant::Participant) and Rust for [`Machine::tick`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Runtime;
use wire::Attributes;

use super::prefetches::RoundTrip;
use super::tick::Circumstances;
use super::wanted::ModelDownload;
use crate::clock::{Clock, Now};
use crate::conditions::{Conditions, DeviceState};
use crate::identity::Identity;
use crate::journal::{Journal, JournalError};
use crate::local_model::Model;
use crate::participant::api::build_error::BuildError;
use crate::participant::api::error::ParticipantError;
use crate::participant::api::event::{Event, Outcome};
use crate::participant::api::plan_error::WorkError;
use crate::participant::machine::Machine;
use crate::participant::model::kept_models::KeptModel;
use crate::participant::states::action::{Action, Input};
use crate::participant::task::training_log::Surroundings;
use crate::participant::task::work::RoundWork;
use crate::trainer::Trainer;
use crate::transport::{Traffic, Transport, TransportError};

/// What the app's own event loop has to do next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Send a request and wait for its answer: [`Driven::perform`].
    Send,
    /// Fetch a model: [`Driven::perform`].
    Fetch,
    /// Train, or evaluate the last version of a task that is over: [`Driven::perform`], which takes as long as the trainer does.
    Train,
    /// Read or write the journal: [`Driven::perform`].
    Journal,
    /// Another thread performs the step: tick again later, or when it has returned.
    Busy,
    /// Wait until this moment, on the clock of [`Now::elapsed`].
    WaitUntil(Duration),
    /// The participant has ended.
    Finished(Result<Outcome, ParticipantError>),
}

/// The environment of a participant.
pub(in crate::participant) struct Around {
    pub(in crate::participant) transport: Arc<dyn Transport>,
    pub(in crate::participant) journal: Arc<dyn Journal>,
    pub(in crate::participant) conditions: Box<dyn Conditions>,
    pub(in crate::participant) attributes: Box<dyn Fn() -> Attributes + Send + Sync>,
    pub(super) observer: Box<dyn Fn(&Event) + Send + Sync>,
    /// Of checkpoints and round trips.
    pub(in crate::participant) clock: Arc<dyn Clock>,
    /// Of each training.
    pub(in crate::participant) surroundings: Surroundings,
}

/// An action that a thread performs.
struct Running {
    number: u64,
    /// Whether its result may be left aside; writes are completed first.
    may_drop: bool,
    training: Option<Arc<RoundWork>>,
}

/// An action in progress. Dropping it, also by a panic during the action, marks the action as pending again: a tick without a result
/// repeats it.
struct Performing<'a> {
    driven: &'a Driven,
    number: u64,
    result: Option<Input>,
}

impl Drop for Performing<'_> {
    fn drop(&mut self) {
        let mut inner = self.driven.inner();
        if inner.running.as_ref().is_some_and(|running| running.number == self.number) {
            inner.running = None;
            inner.result = self.result.take();
        }
    }
}

/// Mutable state, locked for microseconds.
struct Inner {
    machine: Machine,
    /// The last action, until a thread performs it.
    action: Option<Action>,
    running: Option<Running>,
    /// The result of the performed step, until the next tick.
    result: Option<Input>,
    /// Number of actions that were performed.
    performed: u64,
    /// The training that was started last, while anybody runs it or may run it again.
    training: Weak<RoundWork>,
    identified: Option<Arc<Identity>>,
    traffic: Traffic,
    round_trip: RoundTrip,
    stops: bool,
}

/// A participant that its caller drives: [`Self::tick`] returns the next step without waiting or starting a thread, and
/// [`Self::perform`] does it on the caller's thread. Made by [`Builder::build_driven`](crate::participant::Builder::build_driven). Any thread may
/// call; several may.
///
/// It makes requests only when they are due, and reports no spans.
///
/// ```no_run
/// # use std::time::Duration;
/// # use client_sdk::clock::{Clock, SystemClock};
/// # use client_sdk::participant::{Driven, Step};
/// # use client_sdk::{DeviceState, Trainer};
/// # fn drive(participant: &Driven, trainer: &mut dyn Trainer, clock: &SystemClock) {
/// loop {
///     match participant.tick(clock.now(), DeviceState::default(), Some(trainer.examples())) {
///         Step::Send | Step::Fetch | Step::Train | Step::Journal => {
///             participant.perform(trainer);
///         }
///         Step::WaitUntil(moment) => std::thread::sleep(moment.saturating_sub(clock.now().elapsed)), // or do something else
///         Step::Busy => unreachable!("no other thread performs anything"),
///         Step::Finished(outcome) => break println!("{outcome:?}"),
///     }
/// }
/// # }
/// ```
pub struct Driven {
    inner: Mutex<Inner>,
    around: Around,
    /// For requests, on the threads that perform them.
    runtime: Arc<Runtime>,
    /// The process that made it.
    process: u32,
}

impl Driven {
    pub(in crate::participant) fn new(machine: Machine, around: Around) -> Result<Self, BuildError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| BuildError::Thread(error.to_string()))?;
        let inner = Inner {
            machine,
            action: None,
            running: None,
            result: None,
            performed: 0,
            training: Weak::new(),
            identified: None,
            traffic: Traffic::default(),
            round_trip: RoundTrip::default(),
            stops: false,
        };
        Ok(Self { inner: inner.into(), around, runtime: runtime.into(), process: std::process::id() })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next step. `now` is the caller's time, whose [`Now::elapsed`] is monotonic. `device` is for the
    /// policy of [`Builder::device_conditions`](crate::participant::Builder::device_conditions). `examples` is the
    /// number of training examples; `None` keeps the last one.
    ///
    /// While a thread performs an action, the result is [`Step::Busy`], unless the participant leaves the round: because its time is up,
    /// or the conditions do not hold and the training cannot be resumed later. Then the thread's result is dropped, and its training is
    /// cancelled. A training with pause support receives a pause request. A training with possible pause support has
    /// [`Trainer::pause_grace`] to save a checkpoint.
    ///
    /// A call takes microseconds, plus hashing and encoding of outgoing data, and slightly more after a new certificate.
    pub fn tick(&self, now: Now, device: DeviceState, examples: Option<u64>) -> Step {
        let (readiness, attributes) = (self.around.conditions.ready(), (self.around.attributes)());
        let mut inner = self.inner();
        if let Some(running) = &inner.running {
            let is_over = inner.machine.deadline().is_some_and(|deadline| now.elapsed >= deadline);
            let may_work = inner.machine.may_work(readiness, &device);
            let rests = running.training.as_ref().filter(|work| !may_work && work.can_go_on());
            match rests {
                Some(training) => training.pause(),
                // They may have ended for a moment.
                None if may_work => running.training.iter().for_each(|work| work.go_on()),
                None => {}
            }
            // The result of one that has ended is there in a moment.
            let has_ended = running.training.as_ref().is_some_and(|work| work.has_ended());
            let leaves = is_over || inner.stops || (!may_work && rests.is_none() && !has_ended);
            if !(leaves && running.may_drop) {
                return Step::Busy;
            }
            inner.running = None;
        }
        let counted = self.around.transport.traffic();
        let traffic = counted.since(std::mem::replace(&mut inner.traffic, counted));
        let round_trip = Some(inner.round_trip.least());
        let input = inner.result.take().unwrap_or(Input::Tick);
        let circumstances = Circumstances { now, readiness, device, attributes, examples, round_trip, traffic };
        let mut action = inner.machine.tick(input, circumstances);
        if std::mem::take(&mut inner.stops) {
            action = inner.machine.poll(Input::Shutdown, now);
        }
        if let Err(error) = self.identify(&mut inner) {
            action = inner.machine.poll(Input::Unidentified(error), now);
        }
        let step = Step::of(&action);
        inner.action = Some(action);
        let events = inner.machine.take_events();
        drop(inner);
        for event in events {
            (self.around.observer)(&event);
        }
        step
    }

    /// Shows the transport a new certificate.
    fn identify(&self, inner: &mut Inner) -> Result<(), TransportError> {
        let Some(identity) = inner.machine.presented() else { return Ok(()) };
        if inner.identified.as_ref().is_none_or(|known| !Arc::ptr_eq(known, identity)) {
            self.around.transport.identify(identity)?;
            inner.identified = Some(Arc::clone(identity));
        }
        Ok(())
    }

    /// Performs the last tick's action on this thread, and waits for it. The next tick returns the following step. A training runs for
    /// about [`Builder::training_slice`](crate::participant::Builder::training_slice) before a trainer with pause support receives a
    /// pause request. Returns whether there was an action left for this thread.
    ///
    /// While it sends or fetches, a helper thread may look up the server's name, or read the model's file. Must not be called from within
    /// a tokio runtime.
    pub fn perform(&self, trainer: &mut dyn Trainer) -> bool {
        let (number, action, trained_before) = {
            let mut inner = self.inner();
            let action = match inner.action.take() {
                Some(action) if Step::of(&action).is_performed() => action,
                _ => return false,
            };
            inner.performed += 1;
            let number = inner.performed;
            let training = if let Action::Train(work) = &action { Some(Arc::clone(work)) } else { None };
            let trained_before = Weak::clone(&inner.training);
            if let Some(training) = &training {
                inner.training = Arc::downgrade(training);
            }
            let may_drop = !matches!(action, Action::Persist(_));
            inner.running = Some(Running { number, may_drop, training });
            (number, action, trained_before)
        };
        let mut performing = Performing { driven: self, number, result: None };
        let begin = self.around.clock.now().elapsed;
        let is_measured = matches!(&action, Action::Send(request) if request.properties().is_immediate);
        performing.result = Some(self.result_of(action, trainer, trained_before));
        if is_measured {
            self.inner().round_trip.measured(self.around.clock.now().elapsed.saturating_sub(begin));
        }
        true
    }

    fn result_of(&self, action: Action, trainer: &mut dyn Trainer, trained_before: Weak<RoundWork>) -> Input {
        let Around { transport, journal, .. } = &self.around;
        match action {
            Action::Send(request) => Input::Response(self.runtime.block_on(transport.send(&request))),
            Action::Fetch { task, model, have, layout } => {
                let folder = journal.transfers().filter(|_| have.is_empty());
                self.runtime.block_on(ModelDownload { task, model, layout }.fetch(&**transport, folder, have))
            }
            Action::Train(work) => {
                let surroundings = self.around.surroundings.clone();
                // A trainer that panicked is called again: its state is its own responsibility.
                let done = catch_unwind(AssertUnwindSafe(|| work.run_in(trainer, surroundings, &mut || ())));
                Input::Trained(done.unwrap_or(Err(WorkError::Panicked)))
            }
            Action::Evaluate(last) => {
                let done = catch_unwind(AssertUnwindSafe(|| last.evaluate(trainer)));
                Input::Evaluated(done.unwrap_or(Err(WorkError::Panicked)))
            }
            Action::Load(name) => Input::Loaded(journal.load(&name)),
            Action::Persist(records) => {
                // A checkpoint of an abandoned training must not follow its removal.
                if let Some(training) = trained_before.upgrade() {
                    training.settle();
                }
                let mut records = records.iter();
                Input::Persisted(records.try_for_each(|record| journal.save_parts(&record.name, record.parts())))
            }
            Action::WaitUntil(_) | Action::Finished(_) => Input::Tick,
        }
    }

    /// Has it shut down from the next tick on: unfinished training is abandoned, and an update that waits to be sent stays in the journal.
    pub fn stop(&self) {
        self.inner().stops = true;
    }

    /// Queries the machine, such as for its spending, traffic and refusals.
    pub fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(&self.inner().machine)
    }

    /// The model of the task of this name, as [`Participant::model_of`](crate::participant::Participant::model_of). It reads the journal on this thread.
    ///
    /// # Errors
    /// [`JournalError`] if a record cannot be read or was damaged.
    pub fn model_of(&self, name: &str) -> Result<Option<Model>, JournalError> {
        Model::load_of(&*self.around.journal, name)
    }

    /// The published models in the journal, as [`Participant::models`](crate::participant::Participant::models). It reads the journal on this thread.
    ///
    /// # Errors
    /// [`JournalError`] if the list cannot be read or was damaged.
    pub fn models(&self) -> Result<Vec<KeptModel>, JournalError> {
        Model::kept(&*self.around.journal)
    }
}

impl Drop for Driven {
    /// A forked child shares the sockets of its parent, and the parent's epoll list. Dropping the sockets would remove them from that
    /// list, so the parent would miss all answers. Dropping the runtime would wait for helper threads that exist only in the parent.
    /// So a child leaks both.
    fn drop(&mut self) {
        if std::process::id() != self.process {
            std::mem::forget((Arc::clone(&self.runtime), Arc::clone(&self.around.transport)));
        }
    }
}

impl Step {
    fn of(action: &Action) -> Self {
        match action {
            Action::Send(_) => Self::Send,
            Action::Fetch { .. } => Self::Fetch,
            Action::Train(_) | Action::Evaluate(_) => Self::Train,
            Action::Load(_) | Action::Persist(_) => Self::Journal,
            Action::WaitUntil(moment) => Self::WaitUntil(*moment),
            Action::Finished(outcome) => Self::Finished(outcome.clone()),
        }
    }

    /// Whether [`Driven::perform`] has something to do.
    fn is_performed(&self) -> bool {
        match self {
            Self::Send | Self::Fetch | Self::Train | Self::Journal => true,
            Self::Busy | Self::WaitUntil(_) | Self::Finished(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;
