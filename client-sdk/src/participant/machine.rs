//! The life of a participant as a machine without I/O: events in, one action out, time as an argument.
//!
//! The caller performs the [`Action`] and reports how it went by the next [`Machine::poll`]. States consume themselves, one
//! file each; what must survive is written ([`Action::Persist`]) before anything that depends on it is sent. The machine
//! may be dropped at any moment and be made again from the journal's records: then the same bytes go out, or none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use wire::TaskId;
use wire::participant::{
    AbandonReason, CheckInReply, CheckInRequest, EnrollReply, EnrollRequest, ModelRef, Receipt, RenewRequest,
};
use zeroize::Zeroizing;

use super::abandon::Abandon;
use super::check_in::CheckIn;
use super::enroll::Enroll;
use super::error::{ParticipantError, problem_of};
use super::event::{Event, Outcome};
use super::fetch::Fetch;
use super::persist::Persist;
use super::recall::Recall;
use super::renew::Renew;
use super::snapshot::{IdentityRecord, RoundRecord};
use super::train::Train;
use super::upload::Sending;
use super::work::{Contribution, Work, WorkError};
use crate::clock::Now;
use crate::conditions::Readiness;
use crate::identity::{Identity, IdentityError, SigningKey};
use crate::journal::JournalError;
use crate::transport::retry::{RetryPolicy, Verdict};
use crate::transport::{Abandonment, Place, TransportError, Upload};

/// What the caller is to do next. Until it reports back, polling again gives the same action.
pub enum Action {
    /// Send a request.
    Send(Request),
    /// Fetch a model, going on behind what is there already.
    Fetch {
        /// Of which task.
        task: TaskId,
        /// Which version.
        model: ModelRef,
        /// The first bytes of the file, if any have come.
        have: Vec<u8>,
    },
    /// Run this, away from the caller's other business.
    Train(Arc<Work>),
    /// Load a record from the journal.
    Load(String),
    /// Save records in the journal, in this order.
    Persist(Arc<[Record]>),
    /// Nothing to do until this moment, on [`Now::elapsed`]'s clock.
    WaitUntil(Duration),
    /// It is over.
    Finished(Result<Outcome, ParticipantError>),
}

/// A request to the coordinator.
pub enum Request {
    /// [`crate::transport::Transport::enroll`].
    Enroll(EnrollRequest),
    /// [`crate::transport::Transport::renew`].
    Renew(RenewRequest),
    /// [`crate::transport::Transport::check_in`].
    CheckIn(CheckInRequest),
    /// [`crate::transport::Transport::upload`].
    Upload(Upload),
    /// [`crate::transport::Transport::abandon`].
    Abandon(Abandonment),
}

/// A record to save.
pub struct Record {
    /// Its name.
    pub name: String,
    /// Its content.
    pub bytes: Zeroizing<Vec<u8>>,
}

/// What has happened since the last poll.
pub enum Input {
    /// Nothing but that time has passed.
    Tick,
    /// The answer to [`Request::Enroll`].
    Enrolled(Result<EnrollReply, TransportError>),
    /// The answer to [`Request::Renew`].
    Renewed(Result<EnrollReply, TransportError>),
    /// The answer to [`Request::CheckIn`].
    CheckedIn(Result<CheckInReply, TransportError>),
    /// The answer to [`Action::Fetch`].
    Fetched {
        /// All bytes there are now.
        have: Vec<u8>,
        /// Whether that is all.
        result: Result<(), TransportError>,
    },
    /// The answer to [`Action::Train`].
    Trained(Result<Contribution, WorkError>),
    /// The answer to [`Action::Load`].
    Loaded(Result<Option<Zeroizing<Vec<u8>>>, JournalError>),
    /// The answer to [`Action::Persist`].
    Persisted(Result<(), JournalError>),
    /// The answer to [`Request::Upload`].
    Uploaded(Result<Receipt, TransportError>),
    /// The answer to [`Request::Abandon`].
    Abandoned(Result<(), TransportError>),
    /// The certificate cannot be used.
    Unidentified(TransportError),
    /// The app is going away: finish what was begun to be written, give up the rest.
    Shutdown,
}

/// What a participant is told once.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The task it has data for; any if absent.
    pub task: Option<String>,
    /// What it would like to be called.
    pub name: Option<String>,
    /// Labels it gives itself.
    pub labels: BTreeMap<String, String>,
    /// Makes its rounds repeatable.
    pub seed: Option<u64>,
    /// How long a check-in may wait for work.
    pub wait: Duration,
    /// How failures are spaced.
    pub retry: RetryPolicy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            task: None,
            name: None,
            labels: BTreeMap::new(),
            seed: None,
            wait: Duration::from_secs(25),
            retry: RetryPolicy::default(),
        }
    }
}

/// What the journal held.
#[derive(Default)]
pub struct Saved {
    /// The record [`super::snapshot::IDENTITY`].
    pub identity: Option<Zeroizing<Vec<u8>>>,
    /// The record [`super::snapshot::ROUND`].
    pub round: Option<Zeroizing<Vec<u8>>>,
}

/// A participant without I/O.
pub struct Machine {
    core: Core,
    state: State,
}

/// One of the states; each has its file.
pub(super) enum State {
    Persist(Persist),
    Enroll(Enroll),
    Renew(Renew),
    CheckIn(CheckIn),
    Fetch(Fetch),
    Recall(Recall),
    Train(Train),
    Upload(Sending),
    Abandon(Abandon),
    Finished(Result<Outcome, ParticipantError>),
}

/// What all states share.
pub(super) struct Core {
    pub(super) settings: Settings,
    pub(super) key: Arc<SigningKey>,
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) token: Option<Zeroizing<String>>,
    pub(super) examples: u64,
    pub(super) readiness: Readiness,
    pub(super) stopping: bool,
    /// How the last round ended; its place is never taken again.
    pub(super) ended: Option<(Place, Ended)>,
    /// Not before, on the clock that never jumps: a calendar that does must not make a participant renew all the time.
    pub(super) next_renewal: Duration,
    pub(super) rng: ChaCha20Rng,
    pub(super) events: Vec<Event>,
}

/// How a round ended for this participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Its update was sent, or came too late.
    Answered,
    /// It gave up.
    GivenUp(AbandonReason),
}

impl Machine {
    /// Begins, or goes on from what the journal held. `fresh_key` is asked only if there is no identity yet; `entropy` must
    /// come from the system's randomness (or from a seed, in tests).
    ///
    /// # Errors
    /// [`ParticipantError::NotEnrolled`] without token and certificate; [`ParticipantError::Journal`] for records that
    /// cannot be read.
    pub fn new(
        settings: Settings,
        token: Option<Zeroizing<String>>,
        saved: &Saved,
        fresh_key: impl FnOnce() -> Result<SigningKey, IdentityError>,
        entropy: [u8; 32],
    ) -> Result<Self, ParticipantError> {
        let record = saved.identity.as_ref().map(|record| IdentityRecord::decode(record)).transpose()?;
        let is_new = record.is_none();
        let (key, certified) = match record {
            Some(record) => (record.key, record.certified),
            None if token.is_some() => (Arc::new(fresh_key()?), None),
            None => return Err(ParticipantError::NotEnrolled),
        };
        let round = saved.round.as_ref().map(|record| RoundRecord::decode(record)).transpose()?;
        let identity = certified.map(|certified| Arc::new(Identity { key: Arc::clone(&key), certified }));
        if identity.is_none() && token.is_none() {
            return Err(ParticipantError::NotEnrolled);
        }
        let ended = match &round {
            Some(RoundRecord::Done(place)) => Some((*place, Ended::Answered)),
            _ => None,
        };
        let mut core = Core {
            settings,
            key,
            identity,
            token,
            examples: 0,
            readiness: Readiness::Ready,
            stopping: false,
            ended,
            next_renewal: Duration::ZERO,
            rng: ChaCha20Rng::from_seed(entropy),
            events: Vec::new(),
        };
        let state = match (&core.identity, round) {
            (None, _) if is_new => core.save_identity(State::Enroll(Enroll::default())),
            (None, _) => State::Enroll(Enroll::default()),
            (Some(_), Some(RoundRecord::Pending(pending))) => State::Upload(Sending::new(pending)),
            (Some(_), _) => State::CheckIn(CheckIn::default()),
        };
        Ok(Self { core, state })
    }

    /// Takes what has happened and says what to do next.
    pub fn poll(&mut self, input: Input, now: Now) -> Action {
        let state = std::mem::replace(&mut self.state, State::Finished(Ok(Outcome::Stopped)));
        self.state = state.handle(&mut self.core, input, now).settle(&mut self.core, now);
        self.state.action(&mut self.core, now)
    }

    /// Tells whether the app's conditions hold; asked for before each poll.
    pub fn set_readiness(&mut self, readiness: Readiness) {
        self.core.readiness = readiness;
    }

    /// Tells how many training examples there are.
    pub fn set_examples(&mut self, examples: u64) {
        self.core.examples = examples;
    }

    /// Who the participant is, once it is enrolled. Replaced on renewal.
    #[must_use]
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.core.identity.as_ref()
    }

    /// When the round is left although a fetch or training is still under way: drop that then, and poll with a tick.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        match &self.state {
            State::Fetch(state) => Some(state.deadline),
            State::Train(state) => Some(state.deadline),
            _ => None,
        }
    }

    /// What has happened since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.core.events)
    }
}

impl State {
    fn handle(self, core: &mut Core, input: Input, now: Now) -> Self {
        match (self, input) {
            (state, Input::Shutdown) => {
                core.stopping = true;
                state
            }
            (Self::Finished(result), _) => Self::Finished(result),
            (_, Input::Unidentified(error)) => Self::Finished(Err(ParticipantError::Certificate(error))),
            (Self::Persist(state), Input::Persisted(result)) => state.persisted(result),
            (Self::Enroll(state), Input::Enrolled(result)) => state.enrolled(core, result, now),
            (Self::Renew(state), Input::Renewed(result)) => state.renewed(core, result, now),
            (Self::CheckIn(state), Input::CheckedIn(result)) => state.checked_in(core, result, now),
            (Self::Fetch(state), Input::Fetched { have, result }) => state.fetched(core, have, result, now),
            (Self::Recall(state), Input::Loaded(result)) => state.loaded(core, result),
            (Self::Train(state), Input::Trained(result)) => state.trained(core, result),
            (Self::Upload(state), Input::Uploaded(result)) => state.uploaded(core, result, now),
            (Self::Abandon(state), Input::Abandoned(result)) => state.abandoned(core, result, now),
            // Time alone, or an answer to a state that was left by a shutdown.
            (state, _) => state,
        }
    }

    /// What follows from circumstances rather than from answers: shutdown, conditions, deadlines, an ageing certificate.
    fn settle(self, core: &mut Core, now: Now) -> Self {
        match self {
            Self::Enroll(_) | Self::Renew(_) | Self::CheckIn(_) | Self::Upload(_) if core.stopping => {
                Self::Finished(Ok(Outcome::Stopped))
            }
            Self::CheckIn(then) if core.is_renewal_due(now) => Self::Renew(Renew { then }),
            Self::Fetch(state) => match core.must_leave(state.deadline, now) {
                Some(leave) => core.leave(state.plan.place, leave),
                None => Self::Fetch(state),
            },
            Self::Recall(state) => match core.must_leave(state.deadline, now) {
                Some(leave) => core.leave(state.plan.place, leave),
                None => Self::Recall(state),
            },
            Self::Train(state) => match core.must_leave(state.deadline, now) {
                Some(leave) => {
                    state.work.cancel();
                    core.leave(state.plan.place, leave)
                }
                None => Self::Train(state),
            },
            state => state,
        }
    }

    fn action(&mut self, core: &mut Core, now: Now) -> Action {
        if let (
            Self::Enroll(_) | Self::Renew(_) | Self::CheckIn(_) | Self::Upload(_),
            Readiness::NotReady { ask_again },
        ) = (&*self, core.readiness)
        {
            return Action::WaitUntil(now.elapsed.saturating_add(ask_again));
        }
        match self {
            Self::Persist(state) => state.action(),
            Self::Enroll(state) => state.action(core, now),
            Self::Renew(state) => state.action(core),
            Self::CheckIn(state) => state.action(core, now),
            Self::Fetch(state) => state.action(now),
            Self::Recall(state) => state.action(),
            Self::Train(state) => state.action(),
            Self::Upload(state) => state.action(core, now),
            Self::Abandon(state) => state.action(core, now),
            Self::Finished(result) => Action::Finished(result.clone()),
        }
    }
}

/// Why a round is left before its update is made.
pub(super) enum Leave {
    GiveUp(AbandonReason),
    DeadlinePassed,
}

impl Core {
    /// Writes who we are, then goes on.
    pub(super) fn save_identity(&mut self, then: State) -> State {
        let certified = self.identity.as_ref().map(|identity| identity.certified.clone());
        match (IdentityRecord { key: Arc::clone(&self.key), certified }).encode() {
            Ok(bytes) => {
                let record = Record { name: super::snapshot::IDENTITY.to_owned(), bytes };
                State::Persist(Persist::new(vec![record], then))
            }
            Err(error) => State::Finished(Err(error.into())),
        }
    }

    fn is_renewal_due(&self, now: Now) -> bool {
        let due = self.identity.as_ref().is_some_and(|identity| now.wall >= identity.certified.renew_at);
        due && now.elapsed >= self.next_renewal
    }

    fn must_leave(&self, deadline: Duration, now: Now) -> Option<Leave> {
        if self.stopping {
            return Some(Leave::GiveUp(AbandonReason::ShuttingDown));
        }
        if now.elapsed >= deadline {
            return Some(Leave::DeadlinePassed);
        }
        matches!(self.readiness, Readiness::NotReady { .. }).then_some(Leave::GiveUp(AbandonReason::Conditions))
    }

    fn leave(&mut self, place: Place, leave: Leave) -> State {
        match leave {
            Leave::GiveUp(reason) => self.give_up(place, reason),
            Leave::DeadlinePassed => {
                self.round_over(place, "its deadline has passed");
                State::CheckIn(CheckIn::default())
            }
        }
    }

    /// Tells the coordinator not to wait for us.
    pub(super) fn give_up(&mut self, place: Place, reason: AbandonReason) -> State {
        self.ended = Some((place, Ended::GivenUp(reason)));
        self.events.push(Event::Abandoned { place, reason });
        State::Abandon(Abandon::new(place, reason))
    }

    pub(super) fn round_over(&mut self, place: Place, reason: &str) {
        self.ended = Some((place, Ended::Answered));
        self.events.push(Event::RoundOver { place, reason: reason.to_owned() });
    }

    /// The end, if this error means one wherever it comes.
    pub(super) fn fatal(&self, error: &TransportError, verdict: Verdict) -> Option<ParticipantError> {
        match verdict {
            Verdict::Revoked => Some(ParticipantError::Revoked(problem_of(error.clone()))),
            Verdict::Expired => Some(ParticipantError::Expired(problem_of(error.clone()))),
            Verdict::Again(_) | Verdict::RoundOver | Verdict::Refused => None,
        }
    }
}

/// When a state that asks the coordinator for something may ask (again).
#[derive(Clone, Copy, Default)]
pub(super) struct Attempts {
    pub(super) failures: u32,
    ready_at: Duration,
}

impl Attempts {
    /// Not before `ready_at`.
    pub(super) fn not_before(ready_at: Duration) -> Self {
        Self { failures: 0, ready_at }
    }

    /// One more failure: wait longer.
    pub(super) fn again(
        mut self,
        core: &mut Core,
        now: Now,
        what: &'static str,
        error: &dyn std::fmt::Display,
        retry_after: Option<Duration>,
    ) -> Self {
        self.failures = self.failures.saturating_add(1);
        let after = core.settings.retry.delay(self.failures, retry_after, &mut core.rng);
        self.ready_at = now.elapsed.saturating_add(after);
        core.events.push(Event::Retry { what, error: error.to_string(), after });
        self
    }

    /// The moment to wait for, if it has not come.
    pub(super) fn wait(&self, now: Now) -> Option<Action> {
        (now.elapsed < self.ready_at).then_some(Action::WaitUntil(self.ready_at))
    }
}
