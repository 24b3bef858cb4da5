//! Performs a machine's actions: requests on the transport, records in the journal, training on a separate thread.
//!
//! This module is free of protocol rules. At most one action is under way at any time. It is kept across polls, so
//! short polls lose no work.

use std::future::Future;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;
use wire::{Attributes, TaskId};

use super::prefetches::{Answer, Prefetches, RoundTrip};
use super::spans::Spans;
use super::tick::Circumstances;
use super::wanted::ModelDownload;
use crate::clock::Clock;
use crate::conditions::{Conditions, DeviceState, Unmet};
use crate::identity::{Certified, Identity};
use crate::journal::{Journal, JournalError};
use crate::local_model::Model;
use crate::participant::api::error::ParticipantError;
use crate::participant::api::event::{Event, Outcome, Span};
use crate::participant::api::plan_error::WorkError;
use crate::participant::journal::refusals::Refusal;
use crate::participant::journal::traffic::DataUse;
use crate::participant::machine::Machine;
use crate::participant::model::kept_models::KeptModel;
use crate::participant::states::action::{Action, Input};
use crate::participant::task::training_log::{Surroundings, checkpoint_writer};
use crate::participant::task::work::RoundWork;
use crate::privacy::{LifetimeSpent, PrivacySpent};
use crate::trainer::Trainer;
use crate::transport::{Traffic, Transport, TransportError};

/// Time for the last requests after a stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Result of a poll.
#[derive(Debug)]
pub enum Progress {
    /// An action is in progress: poll again.
    Working,
    /// Idle for this long; polling earlier is harmless.
    Waiting(Duration),
    /// The participant has ended; polling again returns the same.
    Finished(Result<Outcome, ParticipantError>),
}

/// An action under way.
struct Running {
    answer: Answer,
    /// Whether a shutdown may drop it; writes are completed first.
    may_drop: bool,
    /// Start of a request that is answered at once; `None` for others.
    since: Option<Duration>,
    /// The training that it is, if it is one.
    training: Option<Arc<RoundWork>>,
    /// When the app's conditions are looked at next, while it trains or evaluates.
    look_at: Option<Instant>,
}

/// A participant of a federation. See the [crate] for how to make one.
pub struct Participant {
    pub(in crate::participant) machine: Machine,
    pub(in crate::participant) transport: Arc<dyn Transport>,
    pub(in crate::participant) journal: Arc<dyn Journal>,
    pub(in crate::participant) trainer: Arc<Mutex<Box<dyn Trainer>>>,
    pub(in crate::participant) conditions: Box<dyn Conditions>,
    pub(in crate::participant) device: Box<dyn Fn() -> DeviceState + Send + Sync>,
    pub(in crate::participant) attributes: Box<dyn Fn() -> Attributes + Send + Sync>,
    pub(super) observer: Box<dyn Fn(&Event) + Send + Sync>,
    pub(in crate::participant) clock: Arc<dyn Clock>,
    pub(in crate::participant) running: Slot,
    /// Time between two checkpoints of a training.
    pub(in crate::participant) checkpoint_every: Duration,
    /// Time between two looks at the app's conditions while a training runs that can pause.
    pub(in crate::participant) slice: Duration,
    pub(super) identified: Option<Arc<Identity>>,
}

/// The action in progress and its prefetched requests.
#[derive(Default)]
pub(in crate::participant) struct Slot {
    running: Option<Running>,
    prefetches: Prefetches,
    round_trip: RoundTrip,
    spans: Spans,
    /// Traffic that the transport has counted so far.
    traffic: Traffic,
    /// The training that was started last, while anybody runs it or may run it again.
    training: Weak<RoundWork>,
    shutdown: bool,
}

impl Running {
    fn droppable(answer: Answer) -> Self {
        Self { answer, may_drop: true, since: None, training: None, look_at: None }
    }
}

impl Participant {
    /// Runs until the task is over, a permanent error occurs or `shutdown` completes; then abandons unfinished
    /// training and returns within seconds, or as soon as a write to the journal that is under way has ended. An update that waits to be sent
    /// stays in the journal.
    ///
    /// # Errors
    /// [`ParticipantError`].
    pub async fn run(&mut self, shutdown: impl Future<Output = ()>) -> Result<Outcome, ParticipantError> {
        let mut shutdown = pin!(shutdown);
        let long = Duration::from_secs(3600);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                progress = self.poll(long) => if let Progress::Finished(result) = progress {
                    return result;
                }
            }
        }
        self.stop();
        let farewell = async {
            loop {
                if let Progress::Finished(result) = self.poll(SHUTDOWN_TIMEOUT).await {
                    return result;
                }
            }
        };
        let ended = tokio::time::timeout(SHUTDOWN_TIMEOUT, farewell).await;
        // Until then it uses parts of the app that the journal depends on, such as a key store. They may be gone once
        // this has returned.
        if let Some(write) = self.running.running.take_if(|running| !running.may_drop) {
            let _ = write.answer.await;
        }
        ended.unwrap_or(Ok(Outcome::Stopped))
    }

    /// Waits until all training has ended. [`run`](Self::run) may return while the trainer still stops a cancelled
    /// training, for example a program, which would outlive the process. Needs a tokio runtime.
    pub async fn trainer_rests(&self) {
        let trainer = Arc::clone(&self.trainer);
        // One that has panicked rests, too.
        let rests = move || drop(trainer.lock());
        let _ = tokio::task::spawn_blocking(rests).await;
    }

    /// Works for about `limit` at most, then returns with any action still in progress. Needs a tokio runtime.
    pub fn poll(&mut self, limit: Duration) -> Pin<Box<dyn Future<Output = Progress> + Send + '_>> {
        Box::pin(async move {
            let end = Instant::now() + limit;
            loop {
                let input = match self.next_input(end).await {
                    Some(input) => input,
                    None => return Progress::Working,
                };
                match self.advance(input) {
                    Action::Finished(result) => return Progress::Finished(result),
                    Action::WaitUntil(moment) => {
                        let wait = moment.saturating_sub(self.clock.now().elapsed);
                        let until = Instant::now() + wait;
                        if until > end {
                            tokio::time::sleep_until(end).await;
                            let wait = moment.saturating_sub(self.clock.now().elapsed);
                            return Progress::Waiting(wait);
                        }
                        tokio::time::sleep_until(until).await;
                    }
                    action => {
                        if let Action::Train(work) = &action {
                            self.running.training = Arc::downgrade(work);
                        }
                        let span = self.running.spans.begin(&action, self.clock.now());
                        self.tell(span);
                        self.running.running = match self.running.prefetches.take(&action) {
                            Some(answer) => Some(Running::droppable(answer)),
                            None => self.start(action),
                        };
                        self.follow();
                    }
                }
            }
        })
    }

    /// The certified identity, once enrolled.
    #[must_use]
    pub fn certified(&self) -> Option<&Certified> {
        self.machine.identity().map(|identity| &identity.certified)
    }

    /// Privacy spent so far, by task, from the participant's own ledger in the journal. Available from construction,
    /// so also after a restart.
    #[must_use]
    pub fn privacy_spent(&self) -> Vec<PrivacySpent> {
        self.machine.privacy_spent()
    }

    /// Privacy spent so far in all tasks together, and the limit on it
    /// ([`PrivacyPolicy::lifetime`](crate::PrivacyPolicy::lifetime)).
    #[must_use]
    pub fn privacy_lifetime(&self) -> LifetimeSpent {
        self.machine.privacy_lifetime()
    }

    /// The model of a task for this app: the personalized one, as the last round that this participant took part in left it, or
    /// else the published version, verified, that its last round, or its last training ahead of rounds, began with;
    /// once the task is over, its last version ([`Event::FinalModel`]). `None` before the first. Read from the journal, so also
    /// offline and after a restart; [`Model::load`] does the same without a participant.
    ///
    /// # Errors
    /// [`JournalError`] if a record cannot be read or was damaged.
    pub fn model(&self, task: TaskId) -> Result<Option<Model>, JournalError> {
        Model::load(&*self.journal, task)
    }

    /// The same for the task of this name that it was given a model of last.
    ///
    /// # Errors
    /// [`JournalError`] if a record cannot be read or was damaged.
    pub fn model_of(&self, name: &str) -> Result<Option<Model>, JournalError> {
        Model::load_of(&*self.journal, name)
    }

    /// The published models in the journal, one for each task, together at most
    /// [`Builder::max_model_bytes`](crate::participant::Builder::max_model_bytes).
    ///
    /// # Errors
    /// [`JournalError`] if the list cannot be read or was damaged.
    pub fn models(&self) -> Result<Vec<KeptModel>, JournalError> {
        Model::kept(&*self.journal)
    }

    /// The condition of the app's [`DeviceConditions`](crate::conditions::DeviceConditions) that holds it up now, if one does.
    #[must_use]
    pub fn held_up(&self) -> Option<Unmet> {
        self.machine.held_up()
    }

    /// Bytes sent and received so far, if the transport counts: the SDK's own does. Remembered in the journal; a
    /// process that is killed forgets at most 256 KiB.
    #[must_use]
    pub fn data_use(&self) -> DataUse {
        self.machine.data_use()
    }

    /// Refusals and their reasons, the latest last: each of the last fifty reasons with its number of occurrences.
    /// Remembered in the journal, so also after a restart.
    #[must_use]
    pub fn refusals(&self) -> Vec<Refusal> {
        self.machine.refusals()
    }

    /// The state machine, for queries. Only [`Self::poll`] changes it.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Makes the participant shut down from the next poll on: see [`Self::run`].
    pub fn stop(&mut self) {
        self.running.shutdown = true;
        if self.running.running.as_ref().is_some_and(|running| running.may_drop) {
            self.running.running = None;
        }
    }

    /// Checks the app's conditions now, also in the middle of a training or a request. If they have ceased to hold, a
    /// training that supports pauses is paused, and one that may support them gets a grace period
    /// ([`Trainer::pause_grace`]). Any other action that may be dropped is given up.
    pub fn conditions_changed(&mut self) {
        let Some(running) = self.running.running.as_ref().filter(|running| running.may_drop) else { return };
        if self.machine.may_work(self.conditions.ready(), &(self.device)()) {
            // They may have ended for a moment.
            running.training.iter().for_each(|work| work.go_on());
            return;
        }
        match running.training.as_ref() {
            Some(work) if work.can_go_on() => work.pause(),
            // Its result is there in a moment.
            Some(work) if work.has_ended() => {}
            Some(_) | None => self.running.running = None,
        }
    }

    /// The result of the action in progress. A tick if the participant is idle or its round's deadline has passed.
    /// `None` if the action is still running at `end`.
    async fn next_input(&mut self, end: Instant) -> Option<Input> {
        loop {
            let Some(running) = &mut self.running.running else { return Some(Input::Tick) };
            let left = self.machine.deadline().map(|deadline| deadline.saturating_sub(self.clock.now().elapsed));
            if left == Some(Duration::ZERO) && running.may_drop {
                // The machine leaves the round and cancels the training.
                self.running.running = None;
                continue;
            }
            let until = left.map_or(end, |left| end.min(Instant::now() + left));
            let until = running.look_at.map_or(until, |look_at| until.min(look_at));
            let prefetches = &mut self.running.prefetches;
            let answer = poll_fn(|context| {
                prefetches.advance(context);
                running.answer.as_mut().poll(context)
            });
            match tokio::time::timeout_at(until, answer).await {
                Ok(input) => {
                    let now = self.clock.now().elapsed;
                    if let Some(took) = running.since.map(|since| now.saturating_sub(since)) {
                        self.running.round_trip.measured(took);
                    }
                    self.running.running = None;
                    let spans = self.running.spans.end(self.clock.now());
                    spans.into_iter().for_each(|span| self.tell(span));
                    return Some(input);
                }
                Err(_) if until == end => return None,
                Err(_) => self.look_at_conditions(),
            }
        }
    }

    /// Looks at the app's conditions in the middle of an evaluation, or of a training that may pause, if it is time.
    fn look_at_conditions(&mut self) {
        let Some(Running { training, look_at: Some(look_at), .. }) = &mut self.running.running else { return };
        let now = Instant::now();
        if now < *look_at {
            return;
        }
        *look_at = now + self.slice;
        // Whether a training may pause is known once it has begun.
        if training.as_ref().is_none_or(|work| work.may_pause()) {
            self.conditions_changed();
        }
    }

    /// Reports an input to the machine, and the resulting events to the observer.
    fn advance(&mut self, input: Input) -> Action {
        if let Some((place, context)) = self.running.spans.hear(&input, self.clock.now()) {
            self.transport.follow(place, context);
        }
        let circumstances = self.circumstances();
        let mut action = self.machine.tick(input, circumstances);
        if std::mem::take(&mut self.running.shutdown) {
            action = self.machine.poll(Input::Shutdown, self.clock.now());
        }
        if let Err(error) = self.identify() {
            action = self.machine.poll(Input::Unidentified(error), self.clock.now());
        }
        for event in self.machine.take_events() {
            (self.observer)(&event);
        }
        action
    }

    fn circumstances(&mut self) -> Circumstances {
        let counted = self.transport.traffic();
        let traffic = counted.since(std::mem::replace(&mut self.running.traffic, counted));
        Circumstances {
            now: self.clock.now(),
            readiness: self.conditions.ready(),
            device: (self.device)(),
            attributes: (self.attributes)(),
            // The trainer is locked while it trains.
            examples: self.trainer.try_lock().ok().map(|trainer| trainer.examples()),
            round_trip: Some(self.running.round_trip.least()),
            traffic,
        }
    }

    /// Reports a span, if there is one.
    fn tell(&self, span: Option<Span>) {
        if let Some(span) = span {
            (self.observer)(&Event::Span(span));
        }
    }

    /// Shows the transport a new certificate.
    fn identify(&mut self) -> Result<(), TransportError> {
        let Some(identity) = self.machine.presented() else { return Ok(()) };
        if self.identified.as_ref().is_none_or(|known| !Arc::ptr_eq(known, identity)) {
            self.transport.identify(identity)?;
            self.identified = Some(Arc::clone(identity));
        }
        Ok(())
    }

    /// Starts the requests that the machine will make next.
    fn follow(&mut self) {
        let mut prefetches = std::mem::take(&mut self.running.prefetches);
        prefetches.follow(&self.machine, |action| self.start(action).map(|running| running.answer));
        self.running.prefetches = prefetches;
    }

    /// The environment of a training here.
    fn surroundings(&self) -> Surroundings {
        let checkpoints = checkpoint_writer(&self.journal, &self.clock, self.checkpoint_every);
        Surroundings { checkpoints: Some(checkpoints), slice: None }
    }

    fn start(&self, action: Action) -> Option<Running> {
        let transport = Arc::clone(&self.transport);
        let journal = Arc::clone(&self.journal);
        let droppable = |answer| Some(Running::droppable(answer));
        match action {
            Action::Send(request) => {
                let since = request.properties().is_immediate.then(|| self.clock.now().elapsed);
                let answer = Box::pin(async move { Input::Response(transport.send(&request).await) });
                Some(Running { since, ..Running::droppable(answer) })
            }
            Action::Fetch { task, model, have, layout } => {
                let wanted = ModelDownload { task, model, layout };
                let folder = journal.transfers().filter(|_| have.is_empty());
                droppable(Box::pin(async move { wanted.fetch(&*transport, folder, have).await }))
            }
            Action::Train(work) => {
                let trainer = Arc::clone(&self.trainer);
                let mut encodes = self.running.spans.encoding_begins(&self.clock);
                let (training, surroundings) = (Some(Arc::clone(&work)), self.surroundings());
                let look_at = Some(Instant::now() + self.slice);
                let run = move || {
                    // A trainer that panicked is called again: its state is its own responsibility.
                    let mut trainer = trainer.lock().unwrap_or_else(PoisonError::into_inner);
                    let done =
                        catch_unwind(AssertUnwindSafe(|| work.run_in(trainer.as_mut(), surroundings, &mut encodes)));
                    done.unwrap_or(Err(WorkError::Panicked))
                };
                let answer = async { tokio::task::spawn_blocking(run).await.unwrap_or(Err(WorkError::Panicked)) };
                let answer = Box::pin(async { Input::Trained(answer.await) });
                Some(Running { training, look_at, ..Running::droppable(answer) })
            }
            Action::Evaluate(last) => {
                let trainer = Arc::clone(&self.trainer);
                let run = move || {
                    let mut trainer = trainer.lock().unwrap_or_else(PoisonError::into_inner);
                    let done = catch_unwind(AssertUnwindSafe(|| last.evaluate(trainer.as_mut())));
                    done.unwrap_or(Err(WorkError::Panicked))
                };
                let answer = async { tokio::task::spawn_blocking(run).await.unwrap_or(Err(WorkError::Panicked)) };
                let answer = Box::pin(async { Input::Evaluated(answer.await) });
                Some(Running { look_at: Some(Instant::now() + self.slice), ..Running::droppable(answer) })
            }
            Action::Load(name) => {
                let load = move || journal.load(&name);
                droppable(Box::pin(async { Input::Loaded(blocking(load).await) }))
            }
            Action::Persist(records) => {
                let training = Weak::clone(&self.running.training);
                let save = move || {
                    // A checkpoint of an abandoned training must not follow its removal.
                    if let Some(training) = training.upgrade() {
                        training.settle();
                    }
                    let mut records = records.iter();
                    records.try_for_each(|record| journal.save_parts(&record.name, record.parts()))
                };
                let answer = Box::pin(async { Input::Persisted(blocking(save).await) });
                Some(Running { may_drop: false, ..Running::droppable(answer) })
            }
            Action::WaitUntil(_) | Action::Finished(_) => None,
        }
    }
}

/// Disk work, away from the runtime's threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, JournalError> + Send + 'static,
) -> Result<T, JournalError> {
    let answer = tokio::task::spawn_blocking(work).await;
    answer.unwrap_or_else(|error| Err(JournalError::io("finish", std::io::Error::other(error))))
}
