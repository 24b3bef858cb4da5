//! What all states share: identity, settings and the contents of the journal; and the transitions out of a round.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand_chacha::ChaCha20Rng;
use secure_agg::codec::Message as _;
use secure_agg::unopened::Departure;
use wire::participant::{AbandonReason, Declined, LossReport, Question, RefusalCode};
use wire::{Attempt, Attributes, Digest, ParticipantId, RoundKey, TaskId};
use zeroize::Zeroizing;

use super::action::Action;
use super::ahead::Ahead;
use super::attempts::Attempts;
use super::error::{ParticipantError, problem_of};
use super::event::{Event, Outcome};
use super::kept_models::KeptModels;
use super::provenance::Shown;
use super::record::Record;
use super::refusals::Refusals;
use super::round_end::{AbandonCause, ExchangeError, LeaveReason, RoundEnd};
use super::session::{Session, SessionError};
use super::settings::Settings;
use super::size::MaxModelBytes;
use super::snapshot::{self, IdentityRecord, LocalState, Pending, RoundCounters, TrainingRecord};
use super::state::{Abandon, CheckIn, Persist, State};
use super::traffic::TrafficLedger;
use super::used_bases::UsedBases;
use crate::clock::Now;
use crate::conditions::{DeviceState, Readiness, Unmet};
use crate::entropy::Secrets;
use crate::identity::{CertificateError, Certified, Identity, IdentityError, SigningKey};
use crate::journal::JournalError;
use crate::privacy::Account;
use crate::transport::retry::Verdict;
use crate::transport::{Request, TransportError};
use recipe::digest::sha256;

/// Maximum number of answered rounds remembered: the latest of each task.
const MOST_RELEASED: usize = 1000;

/// Makes keys of certificates.
pub(super) type FreshKey = Box<dyn FnMut() -> Result<SigningKey, IdentityError> + Send>;

/// Data shared by all states.
pub(super) struct Core {
    pub(super) settings: Settings,
    pub(super) key: Arc<SigningKey>,
    /// The key for the next certificate; already in the journal.
    pub(super) next_key: Option<Arc<SigningKey>>,
    /// An externally issued certificate that the coordinator has not admitted yet.
    pub(super) pre_issued_certificate: Option<crate::pre_issued::UsableCertificate>,
    /// The external certificate found at the start was unusable: look again, even if the present one is not due.
    pub(super) look_again: bool,
    pub(super) fresh_key: FreshKey,
    pub(super) identity: Option<Arc<Identity>>,
    /// The identity under an authority that the app no longer names, until it has enrolled again.
    pub(super) replaced: Option<Arc<Identity>>,
    pub(super) token: Option<Zeroizing<String>>,
    /// SHA-256 of the token used to enrol this identity.
    pub(super) token_sha256: Option<Digest>,
    pub(super) examples: u64,
    pub(super) readiness: Readiness,
    /// As the app decides it.
    pub(super) app_readiness: Readiness,
    /// As the app last reported it.
    pub(super) device: DeviceState,
    /// The condition of the device that holds it up.
    pub(super) held_up: Option<Unmet>,
    pub(super) traffic: TrafficLedger,
    pub(super) refusals: Refusals,
    pub(super) stopping: bool,
    /// How the last round ended; its attempt is never entered again.
    pub(super) round_end: Option<(Attempt, RoundEnd)>,
    /// Keys for a round whose cohort is not drawn, or a session whose assignment the coordinator must repeat after a
    /// restart.
    pub(super) session: Option<Session>,
    /// The attempt whose update or session secrets the journal's round record holds.
    pub(super) holds: Option<Attempt>,
    /// The latest round of each task that a masked input was made for, the latest task last.
    pub(super) released: Vec<RoundKey>,
    pub(super) account: Account,
    /// Models that an input hidden by masks alone was made from.
    pub(super) used_bases: UsedBases,
    /// What the coordinator has shown of where models come from.
    pub(super) shown: Shown,
    /// A training that an earlier process began.
    pub(super) unfinished: Option<TrainingRecord>,
    /// Whether the journal may hold a checkpoint.
    pub(super) has_checkpoint: bool,
    /// Published models in the journal.
    pub(super) models: KeptModels,
    /// The model that this process wrote last.
    pub(super) model_written: Option<(TaskId, Digest)>,
    /// The data for an abort statement about the session in the journal, to be signed when the journal no longer holds
    /// it.
    pub(super) departure: Option<(Attempt, Departure)>,
    /// The signed statement that a session was left, to be sent: the journal no longer holds anything that could
    /// answer in it.
    pub(super) unsaid: Option<(Attempt, Bytes)>,
    /// A task whose coordinator invites to rounds this participant has already answered: reported with each check-in
    /// while that lasts.
    pub(super) behind: Option<Declined>,
    /// The last invitation declined, so that each is reported once.
    pub(super) declined: Option<Attempt>,
    /// Places given up in a row because the app's own limits do not allow the task.
    pub(super) refused_in_a_row: u32,
    /// Trainings ahead of rounds.
    pub(super) ahead: Ahead,
    /// Loss of the last training, for a task that asked. In memory only: after a restart nothing is reported until the
    /// next training.
    pub(super) loss: Option<LossReport>,
    /// Criteria that tasks have asked about; at most as many as one check-in can answer.
    pub(super) questions: Vec<Question>,
    /// The device's attributes, from the app. The coordinator only learns whether they meet a task's criteria.
    pub(super) attributes: Attributes,
    /// Earliest time of the next renewal, on the monotonic clock: a wall clock that jumps must not cause endless
    /// renewals.
    pub(super) next_renewal: Duration,
    /// Shortest measured round-trip time.
    pub(super) round_trip: Duration,
    /// Longest wait between two check-ins while the coordinator is away, from its last `come_back`.
    pub(super) retry_most: Duration,
    /// Whether an answer to a check-in has said, since the start, what is waited for.
    pub(super) is_told: bool,
    /// For pauses, shuffling and rounding.
    pub(super) rng: ChaCha20Rng,
    /// For keys, shares, masks and the noise of private updates, and nothing else.
    pub(super) secrets: Secrets,
    pub(super) events: Vec<Event>,
}

/// What a participant enrols or renews with, in PEM: one of the first two fields.
pub(super) struct Credential {
    pub(super) csr_pem: Option<String>,
    pub(super) certificate_pem: Option<String>,
    pub(super) evidence: Option<String>,
}

impl Core {
    /// The app's limit on the size of models.
    pub(super) fn max_model_bytes(&self) -> MaxModelBytes {
        MaxModelBytes(self.settings.max_model_bytes)
    }

    /// Writes the identity, then continues with `then`.
    pub(super) fn save_identity(&mut self, then: State) -> State {
        let certified = self.identity.as_ref().map(|identity| identity.certified.clone());
        let bytes = IdentityRecord { key: Arc::clone(&self.key), certified, token_sha256: self.token_sha256 }.encode();
        persist(bytes.map(|bytes| vec![Record::new(snapshot::IDENTITY.to_owned(), bytes)]), then)
    }

    /// A request by an enrolled participant.
    pub(super) fn send(&self, request: impl FnOnce(ParticipantId) -> Request) -> Action {
        match &self.identity {
            Some(identity) => Action::Send(request(identity.certified.participant)),
            None => Action::Finished(Err(ParticipantError::NotEnrolled)),
        }
    }

    /// The local deadline for something the coordinator accepts for `remaining`. It counts from when the coordinator
    /// sent its answer, and the last request takes time to arrive: both directions are subtracted.
    pub(super) fn deadline(&self, remaining: Duration, now: Now) -> Duration {
        now.elapsed.saturating_add(remaining.saturating_sub(self.round_trip))
    }

    /// Whether to renew now. A session ends with the key that it began with, so renewal waits for its end; keys for a
    /// cohort that is not drawn delay renewal for at most half of the renewal period.
    pub(super) fn is_renewal_due(&self, now: Now) -> bool {
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
    pub(super) fn may_come_back(&self) -> bool {
        self.identity.is_some() && is_unused(self.token.as_ref(), self.token_sha256)
    }

    /// Takes over the certificate for the next key.
    pub(super) fn certify(&mut self, certified: Certified) {
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
        self.may_depart(Some(session));
        round_record(snapshot::encode_session(session, local_state.unwrap_or(&LocalState::NOTHING), self.counters()))
    }

    /// The round record of an update that is about to be sent.
    pub(super) fn pending_record(&mut self, pending: &Pending) -> Result<Vec<Record>, JournalError> {
        self.holds = Some(pending.place);
        self.may_depart(pending.session.as_ref());
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
        RoundCounters { released: &self.released, charges: self.account.charges(), inputs: self.used_bases.inputs }
    }

    /// The journal holds this session, or will once the current write completes; the session it held before is thereby
    /// left.
    pub(super) fn may_depart(&mut self, session: Option<&Session>) {
        if let Some((place, _)) = self.departure
            && session.is_none_or(|session| session.place != place)
        {
            self.unsaid = self.depart(place);
        }
        let departure = session.and_then(|session| Some((session.place, session.client().ok()?.departure()?)));
        self.departure = departure;
    }

    /// Signs, as long as the session's key is here, that the session in the journal is left; sent once it is.
    pub(super) fn sign_departure(&mut self) {
        if let Some(unsaid) = self.holds.and_then(|place| self.depart(place)) {
            self.unsaid = Some(unsaid);
        }
    }

    /// The signed statement about a session whose state the next record overwrites. If it is lost, others wait longer.
    fn depart(&mut self, place: Attempt) -> Option<(Attempt, Bytes)> {
        let (_, departure) = self.departure.take_if(|(of, _)| *of == place)?;
        let statement = departure.state(&self.key.signer().ok()?).ok()?;
        Some((place, statement.encode().into()))
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
        if let Some(unsaid) = self.depart(place) {
            self.unsaid = Some(unsaid);
        }
        let statement = self.unsaid.as_ref().filter(|(of, _)| *of == place).map(|(_, statement)| statement.clone());
        let round = round_record(snapshot::encode_done(place, given_up, statement, self.counters()));
        persist(round.map(|round| local_state.chain(round).collect()), then)
    }

    /// This participant's part in the round is complete.
    pub(super) fn answered(&mut self, place: Attempt, local_state: Option<LocalState>) -> State {
        self.round_end = Some((place, RoundEnd::Answered));
        self.close(place, local_state, State::CheckIn(CheckIn::default()))
    }

    /// The round continued without this participant.
    pub(super) fn round_over(&mut self, place: Attempt, reason: &str, local_state: Option<LocalState>) -> State {
        if self.ahead.end(place) {
            self.events.push(Event::RoundOver { place, reason: reason.to_owned() });
            return State::CheckIn(CheckIn::default());
        }
        self.round_end = Some((place, RoundEnd::Answered));
        self.events.push(Event::RoundOver { place, reason: reason.to_owned() });
        self.leave_behind(place, local_state, State::CheckIn(CheckIn::default()))
    }

    /// Abandons the round and tells the coordinator.
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
    pub(super) fn refuse(&mut self, place: Attempt, error: &SessionError, local_state: Option<LocalState>) -> State {
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

    /// Deletes keys that the coordinator rejected or that are no longer needed.
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

    pub(super) fn must_leave(&self, deadline: Duration, now: Now) -> Option<LeaveReason> {
        if self.stopping {
            return Some(LeaveReason::GiveUp(AbandonReason::ShuttingDown));
        }
        if now.elapsed >= deadline {
            return Some(LeaveReason::DeadlinePassed);
        }
        matches!(self.readiness, Readiness::NotReady { .. }).then_some(LeaveReason::GiveUp(AbandonReason::Conditions))
    }

    pub(super) fn leave(&mut self, place: Attempt, leave: LeaveReason) -> State {
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
pub(super) fn is_unused(token: Option<&Zeroizing<String>>, used: Option<Digest>) -> bool {
    token.is_some_and(|token| used != Some(sha256(token.as_bytes())))
}

/// Writes records, then continues with `then`.
pub(super) fn persist(records: Result<Vec<Record>, JournalError>, then: State) -> State {
    match records {
        Ok(records) => State::Persist(Persist::new(records, then)),
        Err(error) => State::Finished(Err(error.into())),
    }
}

impl Attempts {
    /// Counts a failure and extends the wait.
    pub(super) fn again(
        self,
        core: &mut Core,
        now: Now,
        what: &'static str,
        error: &dyn std::fmt::Display,
        retry_after: Option<Duration>,
    ) -> Self {
        self.at_most(core.settings.retry.most, core, now, what, error, retry_after)
    }

    /// Counts a failed check-in. Outside rounds all enrolled participants check in, so the wait may be longer; within
    /// a round it must fit into a phase, whatever the coordinator asked for before.
    pub(super) fn check_in_again(
        self,
        core: &mut Core,
        now: Now,
        error: &dyn std::fmt::Display,
        retry_after: Option<Duration>,
    ) -> Self {
        self.at_most(core.retry_most, core, now, "check in", error, retry_after)
    }

    /// Counts an answer that is of no use and will not change soon.
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
