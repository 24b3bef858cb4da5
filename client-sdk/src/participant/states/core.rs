//! State shared by all states: identity, settings and the contents of the journal; and the transitions out of a round.

use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use wire::participant::{AbandonReason, Declined, LossReport, Question, RefusalCode};
use wire::{Attempt, Attributes, Digest, ParticipantId, RoundKey, TaskId};
use zeroize::Zeroizing;

use super::action::Action;
use super::attempts::Attempts;
use super::state::{Abandon, CheckIn, Persist, State};
use crate::clock::Now;
use crate::conditions::{DeviceState, Readiness, Unmet};
use crate::entropy::Secrets;
use crate::identity::{CertificateError, Certified, Identity, IdentityError, SigningKey};
use crate::journal::JournalError;
use crate::participant::api::error::{ParticipantError, problem_of};
use crate::participant::api::event::{Event, Outcome};
use crate::participant::checks::provenance::Shown;
use crate::participant::checks::refused_tasks::RefusedTasks;
use crate::participant::checks::size::MaxModelBytes;
use crate::participant::journal::ahead::Ahead;
use crate::participant::journal::batch::BatchState;
use crate::participant::journal::record::Record;
use crate::participant::journal::refusals::Refusals;
use crate::participant::journal::round_end::{AbandonCause, ExchangeError, LeaveReason, RoundEnd};
use crate::participant::journal::session::{Session, SessionError};
use crate::participant::journal::settings::Settings;
use crate::participant::journal::snapshot::{self, IdentityRecord, LocalState, Pending, RoundCounters, TrainingRecord};
use crate::participant::journal::traffic::TrafficLedger;
use crate::participant::model::kept_models::KeptModels;
use crate::privacy::Account;
use crate::transport::retry::Verdict;
use crate::transport::{Request, TransportError};
use recipe::digest::sha256;

/// Maximum number of answered rounds remembered: the latest of each task.
const MOST_RELEASED: usize = 1000;

/// Makes keys of certificates.
pub(super) type FreshKey = Box<dyn FnMut() -> Result<SigningKey, IdentityError> + Send>;

/// Data shared by all states.
pub(in crate::participant) struct Core {
    pub(in crate::participant) settings: Settings,
    pub(in crate::participant) key: Arc<SigningKey>,
    /// The key for the next certificate; already in the journal.
    pub(in crate::participant) next_key: Option<Arc<SigningKey>>,
    /// An externally issued certificate that the coordinator has not admitted yet.
    pub(in crate::participant) pre_issued_certificate: Option<crate::pre_issued::UsableCertificate>,
    /// The external certificate found at the start was unusable: look again, even if the present one is not due.
    pub(in crate::participant) look_again: bool,
    pub(in crate::participant) fresh_key: FreshKey,
    pub(in crate::participant) identity: Option<Arc<Identity>>,
    /// The identity under an authority that the app has dropped, until it has enrolled again.
    pub(in crate::participant) replaced: Option<Arc<Identity>>,
    pub(in crate::participant) token: Option<Zeroizing<String>>,
    /// SHA-256 of the token used to enrol this identity.
    pub(in crate::participant) token_sha256: Option<Digest>,
    pub(in crate::participant) examples: u64,
    pub(in crate::participant) readiness: Readiness,
    /// As the app decides it.
    pub(in crate::participant) app_readiness: Readiness,
    /// As the app last reported it.
    pub(in crate::participant) device: DeviceState,
    /// The condition of the device that holds it up.
    pub(in crate::participant) held_up: Option<Unmet>,
    pub(in crate::participant) traffic: TrafficLedger,
    pub(in crate::participant) refusals: Refusals,
    pub(in crate::participant) stopping: bool,
    /// The end of the last round; the participant does not enter its attempt again.
    pub(in crate::participant) round_end: Option<(Attempt, RoundEnd)>,
    /// Keys for a round whose cohort is not drawn, or a session whose assignment the coordinator must repeat after a
    /// restart.
    pub(in crate::participant) session: Option<Session>,
    /// The attempt whose update or session secrets the journal's round record holds.
    pub(in crate::participant) holds: Option<Attempt>,
    /// The latest round of each task that a masked input was made for, the latest task last.
    pub(in crate::participant) released: Vec<RoundKey>,
    pub(in crate::participant) account: Account,
    /// This participant's fixed batch, and its state in the current draw.
    pub(in crate::participant) batch: BatchState,
    /// The coordinator's records of the models' provenance so far.
    pub(in crate::participant) shown: Shown,
    /// A training that an earlier process began.
    pub(in crate::participant) unfinished: Option<TrainingRecord>,
    /// Whether the journal may hold a checkpoint.
    pub(in crate::participant) has_checkpoint: bool,
    /// Published models in the journal.
    pub(in crate::participant) models: KeptModels,
    /// The model that this process wrote last.
    pub(in crate::participant) model_written: Option<(TaskId, Digest)>,
    /// A task whose coordinator invites to rounds this participant has already answered: reported with each check-in
    /// while that lasts.
    pub(in crate::participant) behind: Option<Declined>,
    /// The last invitation declined, so that each is reported once.
    pub(in crate::participant) declined: Option<Attempt>,
    /// Places given up in a row because the app's own limits do not allow the task.
    pub(in crate::participant) refused_in_a_row: u32,
    /// Tasks that check-ins report as refused.
    pub(in crate::participant) refused_tasks: RefusedTasks,
    /// Trainings ahead of rounds.
    pub(in crate::participant) ahead: Ahead,
    /// Loss of the last training, for a task that requests it. In memory only: after a restart it is missing until the next training.
    pub(in crate::participant) loss: Option<LossReport>,
    /// Criteria requested by tasks; at most as many as fit into one check-in.
    pub(in crate::participant) questions: Vec<Question>,
    /// The device's attributes, from the app. The coordinator only learns whether they meet a task's criteria.
    pub(in crate::participant) attributes: Attributes,
    /// Earliest time of the next renewal, on the monotonic clock: a wall clock that jumps must not cause endless
    /// renewals.
    pub(in crate::participant) next_renewal: Duration,
    /// Shortest measured round-trip time.
    pub(in crate::participant) round_trip: Duration,
    /// Longest wait between two check-ins while the coordinator is away, from its last `come_back`.
    pub(in crate::participant) retry_most: Duration,
    /// Whether an answer to a check-in has stated, since the start, the reason for the wait.
    pub(in crate::participant) is_told: bool,
    /// For pauses, shuffling and rounding.
    pub(in crate::participant) rng: ChaCha20Rng,
    /// Only for keys, shares, masks and the noise of private updates.
    pub(in crate::participant) secrets: Secrets,
    pub(in crate::participant) events: Vec<Event>,
}

/// A participant's credential to enrol or renew with, in PEM: one of the first two fields.
pub(super) struct Credential {
    pub(in crate::participant) csr_pem: Option<String>,
    pub(in crate::participant) certificate_pem: Option<String>,
    pub(in crate::participant) evidence: Option<String>,
}

impl Core {
    /// The app's limit on the size of models.
    pub(in crate::participant) fn max_model_bytes(&self) -> MaxModelBytes {
        MaxModelBytes(self.settings.max_model_bytes)
    }

    /// Writes the identity, then continues with `then`.
    pub(in crate::participant) fn save_identity(&mut self, then: State) -> State {
        let certified = self.identity.as_ref().map(|identity| identity.certified.clone());
        let bytes = IdentityRecord { key: Arc::clone(&self.key), certified, token_sha256: self.token_sha256 }.encode();
        persist(bytes.map(|bytes| vec![Record::new(snapshot::IDENTITY.to_owned(), bytes)]), then)
    }

    /// A request by an enrolled participant.
    pub(in crate::participant) fn send(&self, request: impl FnOnce(ParticipantId) -> Request) -> Action {
        match &self.identity {
            Some(identity) => Action::Send(request(identity.certified.participant)),
            None => Action::Finished(Err(ParticipantError::NotEnrolled)),
        }
    }

    /// The local deadline for something the coordinator accepts for `remaining`. It counts from when the coordinator
    /// sent its answer, and the last request takes time to arrive: both directions are subtracted.
    pub(in crate::participant) fn deadline(&self, remaining: Duration, now: Now) -> Duration {
        now.elapsed.saturating_add(remaining.saturating_sub(self.round_trip))
    }

    /// Whether to renew now. A session ends with the key that it began with, so renewal waits for its end; keys for a
    /// cohort that is not drawn delay renewal for at most half of the renewal period.
    pub(in crate::participant) fn is_renewal_due(&self, now: Now) -> bool {
        let Some(Identity { certified, .. }) = self.identity.as_deref() else { return false };
        let half =
            certified.renew_at.plus(Duration::from_millis(certified.expires_at.0.abs_diff(certified.renew_at.0) / 2));
        let may = self.session.as_ref().is_none_or(|session| now.wall >= half && session.keys().is_some());
        let is_given = self.pre_issued_certificate.as_ref().is_some_and(|given| given.begins_at() <= now.wall);
        let due = is_given || self.look_again || now.wall >= certified.renew_at;
        due && now.elapsed >= self.next_renewal && may
    }

    /// Creates the key for the next certificate, unless there is one, and persists it before use.
    pub(super) fn with_next_key(&mut self, then: State) -> State {
        if self.next_key.is_some() {
            return then;
        }
        let key = match (self.fresh_key)() {
            Ok(key) => Arc::new(key),
            Err(error) => return State::Finished(Err(error.into())),
        };
        self.next_key = Some(Arc::clone(&key));
        let bytes = IdentityRecord { key, certified: None, token_sha256: None }.encode();
        persist(bytes.map(|bytes| vec![Record::new(snapshot::NEXT_KEY.to_owned(), bytes)]), then)
    }

    /// The key of the next certificate.
    pub(super) fn wanted_key(&self) -> &Arc<SigningKey> {
        match &self.pre_issued_certificate {
            Some(given) => &given.identity.key,
            None => self.next_key.as_ref().unwrap_or(&self.key),
        }
    }

    /// The signing request, or the externally issued certificate.
    pub(super) fn credential(&self, now: Now) -> Result<Credential, ParticipantError> {
        match &self.pre_issued_certificate {
            Some(given) if given.expires_at() <= now.wall => {
                Err(ParticipantError::PreIssuedCertificate(CertificateError::Ended(given.expires_at())))
            }
            Some(given) => {
                let certificate_pem = Some(given.identity.certified.certificate_pem.clone());
                Ok(Credential { csr_pem: None, certificate_pem, evidence: None })
            }
            None => {
                let csr_pem = self.wanted_key().signing_request()?;
                let evidence = self.settings.evidence.of(&csr_pem);
                Ok(Credential { csr_pem: Some(csr_pem), certificate_pem: None, evidence })
            }
        }
    }

    /// Whether there is a token that the present identity was not enrolled with: its certificate has expired, and the
    /// app wants to re-enrol.
    pub(in crate::participant) fn may_come_back(&self) -> bool {
        self.identity.is_some() && is_unused(self.token.as_ref(), self.token_sha256)
    }

    /// Takes over the certificate for the next key.
    pub(in crate::participant) fn certify(&mut self, certified: Certified) {
        self.key = Arc::clone(self.wanted_key());
        (self.next_key, self.pre_issued_certificate) = (None, None);
        self.identity = Some(Arc::new(Identity { key: Arc::clone(&self.key), certified }));
    }

    /// Checks that keys may be made for this attempt.
    pub(super) fn check_fresh(&self, place: Attempt) -> Result<(), SessionError> {
        let is_late = |round: &RoundKey| round.task == place.task && round.number >= place.round;
        if self.released.iter().any(is_late) {
            return Err(SessionError::Released);
        }
        match self.round_end {
            Some((ended, _)) if ended.task == place.task && ended.round == place.round => {
                if ended.attempt >= place.attempt { Err(SessionError::Over) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// The round record of a session before its input is made, or after the receipt. `local_state` takes effect when
    /// the round is over.
    pub(super) fn session_record(
        &mut self,
        session: &Session,
        local_state: Option<&LocalState>,
    ) -> Result<Vec<Record>, JournalError> {
        self.holds = Some(session.place);
        round_record(snapshot::encode_session(session, local_state.unwrap_or(&LocalState::NOTHING), self.counters()))
    }

    /// The round record of an update that is about to be sent.
    pub(super) fn pending_record(&mut self, pending: &Pending) -> Result<Vec<Record>, JournalError> {
        self.holds = Some(pending.place);
        if pending.session.is_some() {
            let round = pending.place.round_key();
            self.released.retain(|released| released.task != round.task);
            self.released.push(round);
            let surplus = self.released.len().saturating_sub(MOST_RELEASED);
            self.released.drain(..surplus);
        }
        let bytes = pending.encode(self.counters())?;
        let mut record = Record::new(snapshot::ROUND.to_owned(), bytes);
        record.body = pending.body.clone();
        Ok(vec![record])
    }

    fn counters(&self) -> RoundCounters<'_> {
        RoundCounters { released: &self.released, charges: self.account.charges() }
    }

    /// Deletes the journal's state of this attempt, applies the local state and continues with `then`. Records are
    /// written in this order: after a crash in between, the pending update is sent again, gets the same answer, and
    /// all of this is repeated.
    fn close(&mut self, place: Attempt, local_state: Option<LocalState>, then: State) -> State {
        self.holds = None;
        self.session = None;
        let given_up = match self.round_end {
            Some((ended, RoundEnd::GivenUp(why))) if ended == place => Some(why),
            _ => None,
        };
        let local_state = local_state.into_iter().flat_map(|local_state| local_state.records(place.task));
        let round = round_record(snapshot::encode_done(place, given_up, self.counters()));
        persist(round.map(|round| local_state.chain(round).collect()), then)
    }

    /// This participant's part in the round is complete.
    pub(in crate::participant) fn answered(&mut self, place: Attempt, local_state: Option<LocalState>) -> State {
        self.round_end = Some((place, RoundEnd::Answered));
        self.events.push(Event::TookPart { place });
        self.close(place, local_state, State::CheckIn(CheckIn::default()))
    }

    /// The round continued without this participant.
    pub(in crate::participant) fn round_over(
        &mut self,
        place: Attempt,
        reason: &str,
        local_state: Option<LocalState>,
    ) -> State {
        if self.ahead.end(place) {
            self.events.push(Event::RoundOver { place, reason: reason.to_owned() });
            return State::CheckIn(CheckIn::default());
        }
        self.round_end = Some((place, RoundEnd::Answered));
        self.events.push(Event::RoundOver { place, reason: reason.to_owned() });
        self.leave_behind(place, local_state, State::CheckIn(CheckIn::default()))
    }

    /// Abandons the round and notifies the coordinator.
    pub(super) fn give_up(
        &mut self,
        place: Attempt,
        why: impl Into<AbandonCause>,
        local_state: Option<LocalState>,
    ) -> State {
        let why @ AbandonCause { reason, refusal } = why.into();
        self.events.push(Event::Abandoned { place, reason, refusal });
        if self.ahead.end(place) {
            // Reported with the next check-in.
            return match self.stopping {
                true => State::Finished(Ok(Outcome::Stopped)),
                false => State::CheckIn(CheckIn::default()),
            };
        }
        self.round_end = Some((place, RoundEnd::GivenUp(why)));
        self.leave_behind(place, local_state, State::Abandon(Abandon::new(place, why)))
    }

    /// Refuses to continue and reports the reason to the app.
    pub(in crate::participant) fn refuse(
        &mut self,
        place: Attempt,
        error: &SessionError,
        local_state: Option<LocalState>,
    ) -> State {
        self.events.push(Event::Refused { place, reason: error.to_string() });
        self.give_up(place, error.code(), local_state)
    }

    /// Leaves a session after an exchange failed.
    pub(super) fn exchange_failed(
        &mut self,
        place: Attempt,
        error: ExchangeError,
        local_state: Option<LocalState>,
    ) -> State {
        match error {
            ExchangeError::RoundOver(reason) => self.round_over(place, &reason, local_state),
            ExchangeError::Rejected(error) => {
                self.events.push(Event::Refused { place, reason: error.to_string() });
                self.give_up(place, RefusalCode::NotTaken, local_state)
            }
            ExchangeError::Fatal(error) => State::Finished(Err(error)),
        }
    }

    /// Deletes rejected or obsolete keys.
    pub(super) fn forget_keys(&mut self, then: State) -> State {
        match self.holds {
            Some(place) => {
                self.round_end = Some((place, RoundEnd::GivenUp(RefusalCode::NotTaken.into())));
                self.close(place, None, then)
            }
            None => then,
        }
    }

    fn leave_behind(&mut self, place: Attempt, local_state: Option<LocalState>, then: State) -> State {
        if self.holds == Some(place) { self.close(place, local_state, then) } else { then }
    }

    pub(in crate::participant) fn must_leave(&self, deadline: Duration, now: Now) -> Option<LeaveReason> {
        if self.stopping {
            return Some(LeaveReason::GiveUp(AbandonReason::ShuttingDown));
        }
        if now.elapsed >= deadline {
            return Some(LeaveReason::DeadlinePassed);
        }
        matches!(self.readiness, Readiness::NotReady { .. }).then_some(LeaveReason::GiveUp(AbandonReason::Conditions))
    }

    pub(in crate::participant) fn leave(&mut self, place: Attempt, leave: LeaveReason) -> State {
        match leave {
            LeaveReason::GiveUp(reason) => self.give_up(place, reason, None),
            LeaveReason::DeadlinePassed => self.round_over(place, "its deadline has passed", None),
        }
    }

    /// The error that ends the participant, if this one does in any state.
    pub(super) fn fatal(&self, error: &TransportError, verdict: Verdict) -> Option<ParticipantError> {
        match verdict {
            Verdict::Revoked => Some(ParticipantError::Revoked(problem_of(error.clone()))),
            Verdict::Expired => Some(ParticipantError::Expired(problem_of(error.clone()))),
            Verdict::Again(_) | Verdict::RoundOver | Verdict::Refused => None,
        }
    }
}

fn round_record(bytes: Result<Zeroizing<Vec<u8>>, JournalError>) -> Result<Vec<Record>, JournalError> {
    Ok(vec![Record::new(snapshot::ROUND.to_owned(), bytes?)])
}

/// Whether there is a token, and another than the one with this digest, which the identity was enrolled with.
pub(in crate::participant) fn is_unused(token: Option<&Zeroizing<String>>, used: Option<Digest>) -> bool {
    token.is_some_and(|token| used != Some(sha256(token.as_bytes())))
}

/// Writes records, then continues with `then`.
pub(in crate::participant) fn persist(records: Result<Vec<Record>, JournalError>, then: State) -> State {
    match records {
        Ok(records) => State::Persist(Persist::new(records, then)),
        Err(error) => State::Finished(Err(error.into())),
    }
}

impl Attempts {
    /// Counts a failure and extends the wait.
    pub(in crate::participant) fn again(
        self,
        core: &mut Core,
        now: Now,
        what: &'static str,
        error: &dyn std::fmt::Display,
        retry_after: Option<Duration>,
    ) -> Self {
        self.at_most(core.settings.retry.most, core, now, what, error, retry_after)
    }

    /// Counts a failed check-in. Outside rounds all enrolled participants check in, so the wait may be longer. Within
    /// a round it must fit into a phase, regardless of the coordinator's earlier pauses.
    pub(super) fn check_in_again(
        self,
        core: &mut Core,
        now: Now,
        error: &dyn std::fmt::Display,
        retry_after: Option<Duration>,
    ) -> Self {
        self.at_most(core.retry_most, core, now, "check in", error, retry_after)
    }

    /// Counts a useless answer that will not change soon.
    pub(super) fn in_vain(self, core: &mut Core, now: Now, what: &'static str, error: &dyn std::fmt::Display) -> Self {
        self.at_most(core.settings.retry.most_in_vain, core, now, what, error, None)
    }

    fn at_most(
        mut self,
        most: Duration,
        core: &mut Core,
        now: Now,
        what: &'static str,
        error: &dyn std::fmt::Display,
        retry_after: Option<Duration>,
    ) -> Self {
        self.failures = self.failures.saturating_add(1);
        let after = core.settings.retry.delay(self.failures, most, retry_after, &mut core.rng);
        self.ready_at = now.elapsed.saturating_add(after);
        core.events.push(Event::Retry { what, error: error.to_string(), after });
        self
    }
}
