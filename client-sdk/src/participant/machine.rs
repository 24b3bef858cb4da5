//! The participant as a state machine without I/O: one input in, one action out, time as an argument.
//!
//! The caller performs the [`Action`] and reports its result with the next [`Machine::tick`](Machine::tick). States
//! consume themselves, one file each; durable state is written ([`Action::Persist`]) before anything that depends on it
//! is sent. The machine may be dropped at any time and rebuilt from the journal's records: then it sends the same
//! bytes, or stays silent.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use secure_agg::client::Client;
use wire::Attempt;
use wire::Attributes;
use wire::participant::{AbandonReason, Answer};
use zeroize::Zeroizing;

use super::api::error::ParticipantError;
use super::api::event::{Event, Outcome};
use super::checks::provenance::Shown;
use super::checks::refused_tasks::RefusedTasks;
pub use super::drivers::tick::Circumstances;
use super::journal::ahead::Ahead;
use super::journal::batch::BatchState;
pub use super::journal::record::Record;
use super::journal::refusals::{Refusal, Refusals};
use super::journal::round_end::{LeaveReason, RoundEnd};
use super::journal::session::{Session, SessionError};
pub use super::journal::settings::{Saved, Settings};
use super::journal::snapshot::{self, RoundRecord, RoundState, TrainingRecord};
use super::journal::traffic::{DataUse, TrafficLedger};
use super::model::kept_models::KeptModels;
pub use super::model::last_version::LastVersion;
pub use super::model::model_file::ModelFile;
pub use super::states::action::{Action, Input};
use super::states::core::Core;
use super::states::joining::origin::Origin;
use super::states::joining::renew;
use super::states::state::{
    AwaitDelivery, CheckIn, Complain, Enroll, Fetch, LoadLocal, MessageUpload, Opening, OpeningPhase, Renew, Sending,
    Share, State, Train,
};
pub use super::task::training_log::{CheckpointWriter, Surroundings};
pub use super::task::work::RoundWork;
use crate::clock::Now;
use crate::conditions::{DeviceState, Readiness, Unmet};
use crate::entropy::Secrets;
use crate::identity::{Identity, IdentityError, SigningKey};
use crate::journal::JournalError;
use crate::privacy::{LifetimeSpent, PrivacySpent};
use crate::transport::{Response, Traffic};

/// A participant without I/O.
pub struct Machine {
    pub(super) core: Core,
    pub(super) state: State,
}

impl Machine {
    /// Starts, or resumes from the journal's records. `fresh_key` creates the key of each certificate. `entropy` is
    /// for pauses, shuffling and rounding, `secrets` for the keys and shares of secure aggregation and for noise: both
    /// come from the system's randomness, or in tests from a seed.
    ///
    /// # Errors
    /// [`ParticipantError::NotEnrolled`] without token and certificate; [`ParticipantError::AuthorityReplaced`] if the
    /// authorities in `settings` exclude the certificate's, without a new token; [`ParticipantError::Journal`] for
    /// records that cannot be read.
    pub fn new(
        settings: Settings,
        token: Option<Zeroizing<String>>,
        saved: &Saved,
        mut fresh_key: impl FnMut() -> Result<SigningKey, IdentityError> + Send + 'static,
        entropy: [u8; 32],
        secrets: Secrets,
    ) -> Result<Self, ParticipantError> {
        let Origin { key, next_key, token_sha256, identity, replaced, pre_issued_certificate, bad, is_new } =
            Origin::find(&settings, token.as_ref(), saved, &mut fresh_key)?;
        let round = saved.round.as_ref().map(|record| RoundRecord::decode(record)).transpose()?;
        if identity.is_none() && token.is_none() {
            return Err(ParticipantError::NotEnrolled);
        }
        let charges = round.as_ref().map_or(0, |record| record.charges);
        let account = snapshot::restore(saved.privacy.as_deref().map(Vec::as_slice), charges, settings.privacy)?;
        let mut batch = BatchState::restore(saved.batch.as_deref().map(Vec::as_slice))?;
        let left_batch = batch.leave(settings.security.leave_batch);
        let shown = Shown::restore(saved.provenance.as_deref().map(Vec::as_slice))?;
        let models = KeptModels::restore(saved.models.as_deref().map(Vec::as_slice))?;
        let unfinished = saved.training.as_ref().map(|record| TrainingRecord::decode(record)).transpose()?.flatten();
        let ahead = Ahead::restore(saved.update.as_deref().map(Vec::as_slice))?;
        let (round, released) = round.map(|record| (record.state, record.released)).unzip();
        let look_again = bad.is_some();
        let events = first_events(&settings, bad, &shown);
        let mut core = Core {
            retry_most: settings.retry.most,
            settings,
            key,
            next_key,
            pre_issued_certificate,
            look_again,
            fresh_key: Box::new(fresh_key),
            identity,
            replaced,
            token,
            token_sha256,
            examples: 0,
            readiness: Readiness::Ready,
            app_readiness: Readiness::Ready,
            device: DeviceState::default(),
            held_up: None,
            traffic: TrafficLedger::new(DataUse::restore(saved.traffic.as_deref().map(Vec::as_slice))?),
            refusals: Refusals::restore(saved.refusals.as_deref().map(Vec::as_slice))?,
            stopping: false,
            round_end: None,
            session: None,
            holds: None,
            released: released.unwrap_or_default(),
            account,
            batch,
            shown,
            has_checkpoint: unfinished.is_some(),
            unfinished,
            models,
            model_written: None,
            behind: None,
            declined: None,
            refused_in_a_row: 0,
            refused_tasks: RefusedTasks::default(),
            ahead,
            loss: None,
            questions: Vec::new(),
            attributes: Attributes::new(),
            next_renewal: if look_again { renew::PAUSE } else { Duration::ZERO },
            round_trip: Duration::ZERO,
            is_told: false,
            rng: ChaCha20Rng::from_seed(entropy),
            secrets,
            events,
        };
        let state = first_state(&mut core, is_new, round);
        Ok(Self { state: if left_batch { core.save_batch(state) } else { state }, core })
    }

    /// Processes an input and returns the next action.
    pub fn poll(&mut self, input: Input, now: Now) -> Action {
        let told = self.core.events.len();
        self.core.look_at_conditions(now);
        let state = std::mem::replace(&mut self.state, State::Finished(Ok(Outcome::Stopped)));
        let state = match state.handle(&mut self.core, input, now) {
            State::Finished(Err(error)) => Enroll::anew(&mut self.core, error),
            state => state,
        };
        let state = state.settle(&mut self.core, now);
        self.core.refusals.note(self.core.events.get(told..).unwrap_or_default(), now.wall);
        self.state = self.core.with_notes_saved(state);
        self.state.action(&mut self.core, now)
    }

    /// Sets whether the app's conditions hold; called before each poll.
    pub fn set_readiness(&mut self, readiness: Readiness) {
        self.core.app_readiness = readiness;
    }

    /// Reports the device's state to the policy in [`Settings::device`].
    pub fn set_device(&mut self, state: DeviceState) {
        self.core.device = state;
    }

    /// Adds to the counted traffic.
    pub fn add_traffic(&mut self, more: Traffic) {
        self.core.traffic.add(more);
    }

    /// Whether work may be done with this readiness of the app and this device state.
    #[must_use]
    pub fn may_work(&self, readiness: Readiness, device: &DeviceState) -> bool {
        readiness == Readiness::Ready && self.core.unmet(device).is_none()
    }

    /// The condition of the device that held it up at the last poll.
    #[must_use]
    pub fn held_up(&self) -> Option<Unmet> {
        self.core.held_up
    }

    /// Bytes sent and received so far.
    #[must_use]
    pub fn data_use(&self) -> DataUse {
        self.core.traffic.used
    }

    /// The last fifty refusals with their reasons, the latest last. They are in the journal before the next check-in, and before the
    /// coordinator receives the refusal.
    #[must_use]
    pub fn refusals(&self) -> Vec<Refusal> {
        self.core.refusals.list.clone()
    }

    /// Sets the device's attributes; called before each poll.
    pub fn set_attributes(&mut self, attributes: Attributes) {
        self.core.attributes = attributes;
    }

    /// Sets the number of training examples.
    pub fn set_examples(&mut self, examples: u64) {
        self.core.examples = examples;
    }

    /// Sets the shortest round-trip time of the connection: local deadlines are that much earlier.
    pub fn set_round_trip(&mut self, least: Duration) {
        self.core.round_trip = least;
    }

    /// The identity, once enrolled, under an authority that the app names. Replaced on renewal.
    #[must_use]
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.core.identity.as_ref()
    }

    /// The identity presented in the handshake: the participant's own, or an external certificate to be admitted.
    #[must_use]
    pub fn presented(&self) -> Option<&Arc<Identity>> {
        match (&self.state, &self.core.pre_issued_certificate) {
            (State::Enroll(_), Some(given)) => Some(&given.identity),
            _ => self.identity(),
        }
    }

    /// Privacy spent so far, by task.
    #[must_use]
    pub fn privacy_spent(&self) -> Vec<PrivacySpent> {
        self.core.account.spent()
    }

    /// Privacy spent so far in all tasks together.
    #[must_use]
    pub fn privacy_lifetime(&self) -> LifetimeSpent {
        self.core.account.lifetime()
    }

    /// When the round, or the transfer of a task's last version, is left even if a fetch or training is in progress: drop that action then and poll with a tick.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        if let State::FetchFinal(state) = &self.state {
            return state.deadline();
        }
        // Local state comes from the journal, at once.
        let (_, deadline) = self.state.before_input().filter(|_| !matches!(self.state, State::LoadLocal(_)))?;
        Some(deadline)
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.core.events)
    }
}

/// The events of the start: lowered floors, an unusable certificate, and contradictions of the coordinator.
fn first_events(settings: &Settings, bad: Option<Event>, shown: &Shown) -> Vec<Event> {
    let lowered = settings.security.lowered().into_iter().map(|floor| Event::Lowered { floor });
    let contradictions = shown.contradictions().map(|(task, pair)| Event::equivocation(task, pair));
    lowered.chain(bad).chain(contradictions).collect()
}

/// The state before the first input.
fn first_state(core: &mut Core, is_new: bool, round: Option<RoundState>) -> State {
    let state = match (&core.identity, round) {
        (None, _) if is_new && core.pre_issued_certificate.is_none() => {
            core.save_identity(State::Enroll(Enroll::default()))
        }
        // Also for its state of a round, which is left once it has enrolled again.
        (identity, Some(round)) if identity.is_some() || core.replaced.is_some() => State::resume(core, round)
            .unwrap_or_else(|error| {
                // The record was checked when it was read, so this state cannot occur.
                State::Finished(Err(JournalError::corrupt(snapshot::ROUND, error).into()))
            }),
        (None, _) => State::Enroll(Enroll::default()),
        (Some(_), _) => State::CheckIn(CheckIn::default()),
    };
    // With a new certificate and a token for it the previous one may have expired.
    let comes_back = core.pre_issued_certificate.is_some() && core.may_come_back();
    if comes_back { State::Enroll(Enroll::default()) } else { core.under_new_authority(state) }
}

impl State {
    /// The state to resume after a restart within a round.
    fn resume(core: &mut Core, round: RoundState) -> Result<Self, SessionError> {
        match round {
            RoundState::Done { place, given_up } => {
                core.round_end = Some((place, given_up.map_or(RoundEnd::Answered, RoundEnd::GivenUp)));
                Ok(Self::CheckIn(CheckIn::default()))
            }
            RoundState::Pending(pending) => {
                core.holds = Some(pending.place);
                let signed = pending.session.as_ref().map(Session::resend).transpose()?;
                Ok(Self::Upload(Sending::new(pending, signed)))
            }
            RoundState::Session { session, local_state } => {
                let place = session.place;
                core.holds = Some(place);
                let client = session.client()?;
                Ok(match &client {
                    Client::ShareKeys(_) | Client::MaskInput(_) => {
                        // The coordinator will repeat the assignment or the request for keys.
                        core.session = Some(session);
                        Self::CheckIn(CheckIn::default())
                    }
                    Client::CheckConsistency(_) => {
                        Self::Opening(Opening::new(OpeningPhase::Confirm, session, local_state))
                    }
                    Client::Unmask(_) => {
                        Self::Opening(Opening::resume(OpeningPhase::Confirm, session, local_state, client.resend()))
                    }
                    Client::Answered(_) => {
                        Self::Opening(Opening::resume(OpeningPhase::Unmask, session, local_state, client.resend()))
                    }
                    Client::Complained(_) => {
                        Self::Complain(Complain::new(place, MessageUpload::new(Answer::Complaint, client.resend())))
                    }
                })
            }
        }
    }

    fn handle(self, core: &mut Core, input: Input, now: Now) -> Self {
        match (self, input) {
            (state, Input::Shutdown) => {
                core.stopping = true;
                state
            }
            (Self::Finished(result), _) => Self::Finished(result),
            (_, Input::Unidentified(error)) => Self::Finished(Err(ParticipantError::Certificate(error))),
            (Self::Persist(state), Input::Persisted(result)) => state.persisted(result),
            (state, Input::Response(response)) => state.heard(core, response, now),
            (Self::Fetch(state), Input::Fetched { have, result }) => state.fetched(core, have, result, now),
            (Self::Fetch(state), Input::Given(file)) => state.came(core, &file, now),
            (Self::LoadLocal(state), Input::Loaded(result)) => state.loaded(core, result, now),
            (Self::FetchFinal(state), Input::Loaded(result)) => state.loaded(result),
            (Self::FetchFinal(state), Input::Fetched { have, result }) => state.fetched(core, have, result, now),
            (Self::FetchFinal(state), Input::Given(file)) => state.came(core, file, now),
            (Self::FetchFinal(state), Input::Evaluated(result)) => state.evaluated(core, result),
            (Self::Train(state), Input::Trained(result)) => state.trained(core, result),
            // Time alone, or the result for a state that was left by a shutdown.
            (state, _) => state,
        }
    }

    fn heard(self, core: &mut Core, response: Response, now: Now) -> Self {
        match (self, response) {
            (Self::Enroll(state), Response::Enrolled(result)) => state.enrolled(core, result, now),
            (Self::Renew(state), Response::Renewed(result)) => state.renewed(core, result, now),
            (Self::CheckIn(state), Response::CheckedIn(result)) => state.checked_in(core, result, now),
            (Self::Share(state), Response::Announced(result)) => state.announced(core, result, now),
            (Self::Share(state), Response::Answered(result)) => state.answered(core, result, now),
            (Self::AwaitDelivery(state), Response::Announced(result)) => state.announced(core, result, now),
            (Self::AwaitDelivery(state), Response::Evidenced(result)) => state.evidenced(core, result, now),
            (Self::Complain(state), Response::Answered(result)) => state.answered(core, result, now),
            (Self::Upload(state), Response::Uploaded(result)) => state.uploaded(core, result, now),
            (Self::Upload(state), Response::Manifested(result)) => state.announced(core, result, now),
            (Self::Upload(state), Response::PartStored(result)) => state.part_stored(core, result, now),
            (Self::Opening(state), Response::Announced(result)) => state.announced(core, result, now),
            (Self::Opening(state), Response::Answered(result)) => state.answered(core, result, now),
            (Self::Abandon(state), Response::Abandoned(result)) => state.abandoned(core, result, now),
            // An answer to a state that was left by a shutdown.
            (state, _) => state,
        }
    }

    /// Whether this state only sends, or fetches for the app, something that can wait until the app is ready or restarted.
    fn can_wait(&self) -> bool {
        matches!(
            self,
            Self::Enroll(_)
                | Self::Renew(_)
                | Self::CheckIn(_)
                | Self::Upload(_)
                | Self::Complain(_)
                | Self::Opening(_)
                | Self::FetchFinal(_)
        )
    }

    /// The attempt and its local deadline, while the input is not made yet.
    fn before_input(&self) -> Option<(Attempt, Duration)> {
        match self {
            Self::Share(Share { plan, deadline, .. })
            | Self::AwaitDelivery(AwaitDelivery { plan, deadline, .. })
            | Self::Fetch(Fetch { plan, deadline, .. })
            | Self::LoadLocal(LoadLocal { plan, deadline, .. })
            | Self::Train(Train { plan, deadline, .. }) => Some((plan.place, *deadline)),
            Self::Persist(_)
            | Self::Enroll(_)
            | Self::Renew(_)
            | Self::CheckIn(_)
            | Self::Complain(_)
            | Self::Upload(_)
            | Self::Opening(_)
            | Self::Abandon(_)
            | Self::FetchFinal(_)
            | Self::Finished(_) => None,
        }
    }

    /// Applies changes that come without an answer: shutdown, conditions, deadlines, the certificate's age.
    fn settle(self, core: &mut Core, now: Now) -> Self {
        match self {
            Self::FetchFinal(state) if core.stopping => state.stop(),
            state if core.stopping && state.can_wait() => Self::Finished(Ok(Outcome::Stopped)),
            Self::CheckIn(then) if core.is_renewal_due(now) => Renew::enter(core, then, now),
            Self::FetchFinal(state) => state.settle(core, now),
            state => match state.before_input() {
                Some((place, deadline)) => match core.must_leave(deadline, now) {
                    Some(LeaveReason::GiveUp(AbandonReason::Conditions)) if state.can_rest(core, now) => match state {
                        Self::Train(training) => training.rest(),
                        state => state,
                    },
                    Some(leave) => {
                        let Self::Train(Train { work, .. }) = &state else { return core.leave(place, leave) };
                        work.cancel();
                        let then = core.leave(place, leave);
                        core.without_checkpoint(Some(work), then)
                    }
                    None => state,
                },
                None => state,
            },
        }
    }

    /// Whether a training can wait until the app's conditions are looked at again.
    fn can_rest(&self, core: &Core, now: Now) -> bool {
        match (self, core.readiness) {
            (Self::Train(state), Readiness::NotReady { ask_again }) => {
                state.work.can_go_on() && now.elapsed.saturating_add(ask_again) < state.deadline
            }
            _ => false,
        }
    }

    fn action(&mut self, core: &mut Core, now: Now) -> Action {
        let waits = self.can_wait() || self.can_rest(core, now);
        if let (true, Readiness::NotReady { ask_again }) = (waits, core.readiness) {
            return Action::WaitUntil(now.elapsed.saturating_add(ask_again));
        }
        match self {
            Self::Persist(state) => state.action(),
            Self::Enroll(state) => state.action(core, now),
            Self::Renew(state) => state.action(core, now),
            Self::CheckIn(state) => state.action(core, now),
            Self::Share(state) => state.action(core, now),
            Self::Fetch(state) => state.action(now),
            Self::AwaitDelivery(state) => state.action(core, now),
            Self::Complain(state) => state.action(core, now),
            Self::LoadLocal(state) => state.action(),
            Self::Train(state) => state.action(),
            Self::Upload(state) => state.action(core, now),
            Self::Opening(state) => state.action(core, now),
            Self::Abandon(state) => state.action(core, now),
            Self::FetchFinal(state) => state.action(now),
            Self::Finished(result) => Action::Finished(result.clone()),
        }
    }
}
