//! What all states share: who the participant is, what it was told, what its journal holds; and the ways out of a round.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand_chacha::ChaCha20Rng;
use secure_agg::codec::Message as _;
use secure_agg::unopened::Departure;
use wire::participant::{AbandonReason, Declined, LossReport, Question, RefusalCode};
use wire::{Attempt, Attributes, Digest, ParticipantId, RoundKey};
use zeroize::Zeroizing;

use super::action::Action;
use super::ahead::Ahead;
use super::attempts::Attempts;
use super::error::{ParticipantError, problem_of};
use super::event::{Event, Outcome};
use super::plan::Plan;
use super::record::Record;
use super::round_end::{AbandonCause, ExchangeError, LeaveReason, RoundEnd};
use super::session::{Session, SessionError};
use super::settings::Settings;
use super::size::MaxModelBytes;
use super::snapshot::{self, IdentityRecord, LocalState, Pending, RoundCounters};
use super::state::{Abandon, CheckIn, Persist, State};
use super::used_bases::{BaseId, PastInput, UsedBases};
use crate::clock::Now;
use crate::conditions::Readiness;
use crate::entropy::Secrets;
use crate::identity::{CertificateError, Certified, Identity, IdentityError, SigningKey};
use crate::journal::JournalError;
use crate::privacy::Account;
use crate::transport::retry::Verdict;
use crate::transport::{Request, TransportError};
use recipe::digest::sha256;

/// Most rounds that are remembered for having been answered: the latest of so many tasks.
const MOST_RELEASED: usize = 1000;

/// Makes keys of certificates.
pub(super) type FreshKey = Box<dyn FnMut() -> Result<SigningKey, IdentityError> + Send>;

/// What all states share.
pub(super) struct Core {
    pub(super) settings: Settings,
    pub(super) key: Arc<SigningKey>,
    /// For the next certificate, in the journal already.
    pub(super) next_key: Option<Arc<SigningKey>>,
    /// A certificate from elsewhere that the coordinator has not admitted yet.
    pub(super) pre_issued_certificate: Option<crate::pre_issued::UsableCertificate>,
    /// What was there at the start could not be used: it is looked for again, whether the present one is due or not.
    pub(super) look_again: bool,
    pub(super) fresh_key: FreshKey,
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) token: Option<Zeroizing<String>>,
    /// SHA-256 of the token that the identity was bought with.
    pub(super) token_sha256: Option<Digest>,
    pub(super) examples: u64,
    pub(super) readiness: Readiness,
    pub(super) stopping: bool,
    /// How the last round ended; its place is never taken again.
    pub(super) round_end: Option<(Attempt, RoundEnd)>,
    /// Keys for a round whose cohort is not drawn, or a session whose assignment has to be told again after a restart.
    pub(super) session: Option<Session>,
    /// For which place the journal's record of the round holds an update or the secrets of a session.
    pub(super) holds: Option<Attempt>,
    /// The latest round of each task that a masked input was made for, the latest task last.
    pub(super) released: Vec<RoundKey>,
    /// What was spent on privacy.
    pub(super) account: Account,
    /// From which models inputs were given under masks alone.
    pub(super) used_bases: UsedBases,
    /// What can be said of the session that the journal holds, once the journal holds it no more.
    pub(super) departure: Option<(Attempt, Departure)>,
    /// That a session was left, which is to be said: the journal holds nothing any more that could answer in it.
    pub(super) unsaid: Option<(Attempt, Bytes)>,
    /// A task whose coordinator invites to rounds that are past here: told with each check-in until it does no more.
    pub(super) behind: Option<Declined>,
    /// The last invitation that was declined: told once.
    pub(super) declined: Option<Attempt>,
    /// Trainings ahead of rounds.
    pub(super) ahead: Ahead,
    /// How the last training went, for a task that asked. Kept in memory alone: after a restart none is told until the next.
    pub(super) loss: Option<LossReport>,
    /// What tasks want of devices, as far as they have asked; at most as many as can be told at once.
    pub(super) questions: Vec<Question>,
    /// What the app says of this device. Only whether it meets a task's criteria is ever told.
    pub(super) attributes: Attributes,
    /// Not before, on the clock that never jumps: a calendar that does must not make a participant renew all the time.
    pub(super) next_renewal: Duration,
    /// Least time that a request and its answer take on this line.
    pub(super) round_trip: Duration,
    /// Longest wait between two check-ins while the coordinator is away, as its last `come_back` has it.
    pub(super) retry_most: Duration,
    /// For pauses, shuffling and rounding.
    pub(super) rng: ChaCha20Rng,
    /// For keys, shares, masks and the noise of private updates, and nothing else.
    pub(super) secrets: Secrets,
    pub(super) events: Vec<Event>,
}

/// What a participant is to be known by, in PEM: one of the first two.
pub(super) struct Credential {
    pub(super) csr_pem: Option<String>,
    pub(super) certificate_pem: Option<String>,
    pub(super) evidence: Option<String>,
}

/// Why an update could not be accounted for.
pub(super) enum ChargeError {
    Refused(SessionError),
    Journal(JournalError),
}

impl Core {
    /// What the app allows models to take.
    pub(super) fn max_model_bytes(&self) -> MaxModelBytes {
        MaxModelBytes(self.settings.max_model_bytes)
    }

    /// Writes who we are, then goes on.
    pub(super) fn save_identity(&mut self, then: State) -> State {
        let certified = self.identity.as_ref().map(|identity| identity.certified.clone());
        let bytes = IdentityRecord { key: Arc::clone(&self.key), certified, token_sha256: self.token_sha256 }.encode();
        persist(bytes.map(|bytes| vec![Record::new(snapshot::IDENTITY.to_owned(), bytes)]), then)
    }

    /// A request of a participant that has a certificate.
    pub(super) fn send(&self, request: impl FnOnce(ParticipantId) -> Request) -> Action {
        match &self.identity {
            Some(identity) => Action::Send(request(identity.certified.participant)),
            None => Action::Finished(Err(ParticipantError::NotEnrolled)),
        }
    }

    /// When to leave what the coordinator waits for this long. It counted from when it sent its answer, and what is sent at the
    /// last moment has yet to arrive: both ways come off.
    pub(super) fn deadline(&self, remaining: Duration, now: Now) -> Duration {
        now.elapsed.saturating_add(remaining.saturating_sub(self.round_trip))
    }

    /// Whether to renew now. A session is finished with the key it was begun with, so renewal waits for its end; only keys for a
    /// cohort that is not drawn are not waited for any more when half of the time for renewing is over.
    pub(super) fn is_renewal_due(&self, now: Now) -> bool {
        let Some(Identity { certified, .. }) = self.identity.as_deref() else { return false };
        let half =
            certified.renew_at.plus(Duration::from_millis(certified.expires_at.0.abs_diff(certified.renew_at.0) / 2));
        let may = self.session.as_ref().is_none_or(|session| now.wall >= half && session.keys().is_some());
        let is_given = self.pre_issued_certificate.as_ref().is_some_and(|given| given.begins_at() <= now.wall);
        let due = is_given || self.look_again || now.wall >= certified.renew_at;
        due && now.elapsed >= self.next_renewal && may
    }

    /// Makes the key for the next certificate, unless there is one, and writes it before anything depends on it.
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

    /// The key that the next certificate is asked for, or is of.
    pub(super) fn wanted_key(&self) -> &Arc<SigningKey> {
        match &self.pre_issued_certificate {
            Some(given) => &given.identity.key,
            None => self.next_key.as_ref().unwrap_or(&self.key),
        }
    }

    /// What the coordinator is asked for or told: a signing request, or a certificate from elsewhere; in PEM.
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

    /// Whether there is a token that was not used for the present identity: its certificate has ended, and the app wants it to
    /// come back.
    pub(super) fn may_come_back(&self) -> bool {
        let unused = |token: &Zeroizing<String>| self.token_sha256 != Some(sha256(token.as_bytes()));
        self.identity.is_some() && self.token.as_ref().is_some_and(unused)
    }

    /// A certificate for that key has come.
    pub(super) fn certify(&mut self, certified: Certified) {
        self.key = Arc::clone(self.wanted_key());
        (self.next_key, self.pre_issued_certificate) = (None, None);
        self.identity = Some(Arc::new(Identity { key: Arc::clone(&self.key), certified }));
    }

    /// Whether keys may be made for this place.
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

    /// The record of a session before its input is made, or after the receipt. `local_state` is what takes effect
    /// when the round is over.
    pub(super) fn session_record(
        &mut self,
        session: &Session,
        local_state: Option<&LocalState>,
    ) -> Result<Vec<Record>, JournalError> {
        self.holds = Some(session.place);
        self.may_depart(Some(session));
        round_record(snapshot::encode_session(session, local_state.unwrap_or(&LocalState::NOTHING), self.counters()))
    }

    /// The record of an update that is about to be sent.
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

    /// Charges the update of this round, if a mechanism makes it private. Yields what has to be kept before the update is.
    pub(super) fn charge(&mut self, plan: &Plan) -> Result<Option<Record>, ChargeError> {
        let Some(round) = plan.private() else { return Ok(None) };
        let charged = self.account.charge(plan.place, &plan.assignment.task_name, round);
        if !charged.map_err(|refusal| ChargeError::Refused(refusal.into()))? {
            return Ok(None);
        }
        let bytes = snapshot::encode_account(&self.account).map_err(ChargeError::Journal)?;
        Ok(Some(Record::new(snapshot::PRIVACY.to_owned(), bytes)))
    }

    /// Remembers what an input is made from that masks alone hide. Yields what has to be kept before the input is.
    pub(super) fn record_base(
        &mut self,
        plan: &Plan,
        session: Option<&Session>,
    ) -> Result<Option<Record>, ChargeError> {
        let Some(base) = plan.base().map(BaseId::from) else { return Ok(None) };
        let Some(session) = session else {
            // The coordinator can read it, and learns nothing by a second one: nothing to remember.
            return self.used_bases.check(base, plan.place).map(|()| None).map_err(ChargeError::Refused);
        };
        let session = session.id().map_err(ChargeError::Refused)?;
        self.used_bases.record(PastInput { base, place: plan.place, session }).map_err(ChargeError::Refused)?;
        let bytes = self.used_bases.encode().map_err(ChargeError::Journal)?;
        Ok(Some(Record::new(snapshot::USED_BASES.to_owned(), bytes)))
    }

    fn counters(&self) -> RoundCounters<'_> {
        RoundCounters { released: &self.released, charges: self.account.charges(), inputs: self.used_bases.inputs }
    }

    /// The journal holds this session, or will once what is being written is safe; one that it held before is left with that.
    pub(super) fn may_depart(&mut self, session: Option<&Session>) {
        if let Some((place, _)) = self.departure
            && session.is_none_or(|session| session.place != place)
        {
            self.unsaid = self.depart(place);
        }
        let departure = session.and_then(|session| Some((session.place, session.client().ok()?.departure()?)));
        self.departure = departure;
    }

    /// What is said of a session whose state the next record overwrites. Without it, only others wait longer.
    fn depart(&mut self, place: Attempt) -> Option<(Attempt, Bytes)> {
        let (_, departure) = self.departure.take_if(|(of, _)| *of == place)?;
        let statement = departure.state(&self.key.signer().ok()?).ok()?;
        Some((place, statement.encode().into()))
    }

    /// Forgets what the journal holds of this place, lets what stayed at home take effect, and goes on. Records are written
    /// in this order: if it dies in between, what was pending is sent again, gets the same answer, and all is repeated.
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

    /// The round was answered as far as it goes.
    pub(super) fn answered(&mut self, place: Attempt, local_state: Option<LocalState>) -> State {
        self.round_end = Some((place, RoundEnd::Answered));
        self.close(place, local_state, State::CheckIn(CheckIn::default()))
    }

    /// The round went on without this participant.
    pub(super) fn round_over(&mut self, place: Attempt, reason: &str, local_state: Option<LocalState>) -> State {
        if self.ahead.end(place) {
            self.events.push(Event::RoundOver { place, reason: reason.to_owned() });
            return State::CheckIn(CheckIn::default());
        }
        self.round_end = Some((place, RoundEnd::Answered));
        self.events.push(Event::RoundOver { place, reason: reason.to_owned() });
        self.leave_behind(place, local_state, State::CheckIn(CheckIn::default()))
    }

    /// Tells the coordinator not to wait for us.
    pub(super) fn give_up(
        &mut self,
        place: Attempt,
        why: impl Into<AbandonCause>,
        local_state: Option<LocalState>,
    ) -> State {
        let why @ AbandonCause { reason, refusal } = why.into();
        self.events.push(Event::Abandoned { place, reason, refusal });
        if self.ahead.end(place) {
            // Told with the next check-in.
            return match self.stopping {
                true => State::Finished(Ok(Outcome::Stopped)),
                false => State::CheckIn(CheckIn::default()),
            };
        }
        self.round_end = Some((place, RoundEnd::GivenUp(why)));
        self.leave_behind(place, local_state, State::Abandon(Abandon::new(place, why)))
    }

    /// Takes no further part, and says why to the app.
    pub(super) fn refuse(&mut self, place: Attempt, error: &SessionError, local_state: Option<LocalState>) -> State {
        self.events.push(Event::Refused { place, reason: error.to_string() });
        self.give_up(place, error.code(), local_state)
    }

    /// The ways out of a session that the coordinator points to.
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

    /// Keys that the coordinator does not take, or that nobody needs any more.
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

    /// The end, if this error means one wherever it comes.
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

/// Writes records, then goes on.
pub(super) fn persist(records: Result<Vec<Record>, JournalError>, then: State) -> State {
    match records {
        Ok(records) => State::Persist(Persist::new(records, then)),
        Err(error) => State::Finished(Err(error.into())),
    }
}

impl Attempts {
    /// One more failure: wait longer.
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

    /// One more check-in that failed. Outside of rounds everybody asks who is enrolled, so that the wait may be longer; in one it
    /// must fit into the time of a phase, whatever the coordinator said before.
    pub(super) fn check_in_again(
        self,
        core: &mut Core,
        now: Now,
        error: &dyn std::fmt::Display,
        retry_after: Option<Duration>,
    ) -> Self {
        self.at_most(core.retry_most, core, now, "check in", error, retry_after)
    }

    /// One more answer with which nothing can be done, and that will stay the same for a while.
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
