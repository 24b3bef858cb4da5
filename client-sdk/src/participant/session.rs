//! A session of secure aggregation as this participant holds it: `secure_agg`'s snapshot, and the place it is for.
//!
//! What is in memory is what is in the journal. Each step reads the state from the snapshot, consumes it, and yields the next
//! snapshot with the message to send; the message goes out once that is safe. So a participant that is killed and made
//! again says what it said, and a state that could answer a question a second time exists nowhere.

use bytes::Bytes;
use secure_agg::client::{Client, Release, Setup, Snapshot, advertise_keys};
use secure_agg::codec::{DecodeError, Message as _};
use secure_agg::messages::{Roster, Round};
use secure_agg::params::SessionConfig;
use secure_agg::rejection::Refusal;
use secure_agg::unopened::Unproven;
use wire::base64::Base64;
use wire::certificate::{self, Authority};
use wire::participant::{Assignment, RefusalCode, RoundKeys, SessionTerms};
use wire::{Digest, ParticipantId};
use zeroize::Zeroizing;

use super::ahead::NotGiven;
use super::core::Core;
use super::policy::TooStale;
use super::size::TooLarge;
use crate::clock::Now;
use crate::identity::{self, CertificateError, IdentityError};
use crate::privacy;
use crate::transport::Place;

/// Why this participant takes no (further) part. Told to the app; the coordinator learns [`SessionError::code`].
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("{code}: {0}", code = .0.code())]
    Refusal(#[from] Refusal),
    #[error("the own certificate cannot be shown to others: {0}")]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Key(#[from] IdentityError),
    #[error("an update of this or a later round of the task was sent before; another one would tell them apart")]
    Released,
    #[error(
        "an update was given from this very model before, hidden by masks alone; the sum with another one from it, without \
         somebody, would tell the two apart"
    )]
    Given,
    #[error("what was shown does not prove that an update given from this very model before is in no sum: {0}")]
    Unproven(#[from] Unproven),
    #[error("this participant has given updates from as many models as it can remember")]
    GivenFull,
    #[error("this attempt at the round, or a later one, is over for this participant")]
    Over,
    #[error("the round is without secure aggregation, which this participant demands")]
    Uncovered,
    #[error("keys were asked for, but now the round is without secure aggregation")]
    Downgraded,
    #[error("this participant holds no keys for the round")]
    NoKeys,
    #[error(transparent)]
    Privacy(#[from] privacy::Refusal),
    #[error("not enrolled")]
    NotEnrolled,
    #[error(transparent)]
    TrainedAhead(#[from] NotGiven),
    #[error(transparent)]
    Staleness(#[from] TooStale),
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

impl SessionError {
    /// What the coordinator is told of it.
    pub(super) fn code(&self) -> RefusalCode {
        match self {
            Self::Refusal(Refusal::BelowPolicy { .. }) | Self::Uncovered | Self::Staleness(_) => RefusalCode::Policy,
            Self::Refusal(_) | Self::Downgraded => RefusalCode::Protocol,
            Self::Released | Self::Given | Self::Unproven(_) | Self::GivenFull | Self::Over => RefusalCode::Given,
            Self::Certificate(_) | Self::Key(_) | Self::NoKeys | Self::NotEnrolled => RefusalCode::Keys,
            Self::Privacy(_) => RefusalCode::Privacy,
            Self::TrainedAhead(_) => RefusalCode::Assignment,
            Self::TooLarge(_) => RefusalCode::TooLarge,
        }
    }
}

impl From<DecodeError> for SessionError {
    fn from(error: DecodeError) -> Self {
        Self::Refusal(error.into())
    }
}

/// How far a session has come. Neither printable nor copyable: the snapshot holds its keys.
pub(super) struct Session {
    pub(super) place: Place,
    /// What the participant was told when it made the keys.
    pub(super) terms: SessionTerms,
    /// The model that the session is bound to, since shares were dealt.
    pub(super) model: Option<Digest>,
    /// Who takes part, in the roster's order; none before there is a roster.
    pub(super) members: Vec<ParticipantId>,
    pub(super) snapshot: Zeroizing<Vec<u8>>,
}

impl Session {
    /// The state, to be consumed by one step.
    pub(super) fn client(&self) -> Result<Client, SessionError> {
        // Its bytes were checked when they were loaded, and come from the same code otherwise.
        Client::restore(&self.snapshot).map_err(|_| Refusal::OutOfOrder.into())
    }

    /// Its id, once there is a roster.
    pub(super) fn id(&self) -> Result<Digest, SessionError> {
        self.client()?.sid().copied().map(Digest).ok_or_else(|| Refusal::OutOfOrder.into())
    }

    /// What was said last, word for word.
    pub(super) fn resend(&self) -> Result<Bytes, SessionError> {
        Ok(self.client()?.resend().into())
    }

    /// After a step.
    pub(super) fn advance(self, snapshot: &Snapshot) -> Self {
        Self { snapshot: Zeroizing::new(snapshot.expose().to_vec()), ..self }
    }

    /// What to check in with, as long as the cohort is not drawn.
    pub(super) fn keys(&self) -> Option<RoundKeys> {
        let Place { task, round, attempt } = self.place;
        match self.client() {
            Ok(client @ Client::ShareKeys(_)) => {
                Some(RoundKeys { task, round, attempt, advertisement: Base64(client.resend()) })
            }
            _ => None,
        }
    }
}

/// An attempt, as the protocol names it.
pub(super) fn round(place: Place) -> Round {
    Round::new(place.task.0.as_bytes(), place.round.into(), place.attempt)
}

/// Whether this participant would take part in a round on these terms, or in one without a session where there are none.
pub(super) fn accept(core: &Core, terms: Option<&SessionTerms>) -> Result<(), SessionError> {
    let Some(terms) = terms else {
        return if core.settings.security.required { Err(SessionError::Uncovered) } else { Ok(()) };
    };
    core.settings.security.floors().accept(&SessionConfig::from(terms))?;
    core.max_model_bytes().check_values("an encoded update", terms.words)?;
    own_certificate(core).map(drop)
}

/// Whether this participant would have its update in a sum with some that started from versions so old. Where the coordinator
/// can read every update, it makes no difference.
pub(super) fn accept_staleness(core: &Core, assignment: &Assignment) -> Result<(), SessionError> {
    let is_secure = assignment.secure_aggregation.is_some();
    let asked = assignment.encoding.staleness.map_or(0, |rule| rule.max);
    core.settings.security.objection_to_staleness(asked).filter(|_| is_secure).map_or(Ok(()), |error| Err(error.into()))
}

/// Makes keys for an attempt.
pub(super) fn advertise(core: &mut Core, place: Place, terms: SessionTerms) -> Result<Session, SessionError> {
    core.check_fresh(place)?;
    core.account.is_closed(place)?;
    core.max_model_bytes().check_values("an encoded update", terms.words)?;
    let identity = core.identity.as_deref().ok_or(SessionError::NotEnrolled)?;
    let config = SessionConfig::from(&terms);
    let setup = Setup {
        round: round(place),
        client_id: identity.certified.participant.0.as_bytes().to_vec(),
        certificate: own_certificate(core)?,
        config,
        policy: core.settings.security.floors(),
    };
    let signer = core.key.signer()?;
    let same_round = |session: &&Session| (session.place.task, session.place.round) == (place.task, place.round);
    let step = match core.session.as_ref().filter(same_round) {
        // A later attempt at a round is entered through here alone: no update is released twice.
        Some(before) => before.client()?.retry(setup, Release::SameUpdate, &signer, core.secrets.as_mut())?,
        None => advertise_keys(setup, &signer, core.secrets.as_mut())?,
    };
    let snapshot = Zeroizing::new(step.persist.expose().to_vec());
    Ok(Session { place, terms, model: None, members: Vec::new(), snapshot })
}

/// Judges the roster, and deals shares of both seeds to everybody in it. Yields what to send.
pub(super) fn deal(
    core: &mut Core,
    session: Session,
    roster: &[u8],
    model: Digest,
    now: Now,
) -> Result<(Session, Bytes), SessionError> {
    let roster = Roster::decode(roster)?;
    // Who may be a member is the app's choice: the coordinator's word for it would let it invent members.
    let authority = Authority::any_of(core.settings.members.clone(), now.wall);
    let signer = core.key.signer()?;
    let client = session.client()?.waiting_for_roster()?;
    let step = client.share_keys(&roster, &model.0, &authority, &signer, core.secrets.as_mut())?;
    // Every certificate was found to speak for its client id.
    let holders = roster.entries.iter().map(|entry| certificate::holder(entry.certificate.as_slice()));
    let members = holders.map(|holder| holder.map(|holder| holder.participant)).collect::<Option<_>>();
    let members = members.ok_or(Refusal::Certificate { entry: 0 })?;
    Ok((Session { model: Some(model), members, ..session.advance(&step.persist) }, step.send.encode().into()))
}

/// The participant's own certificate (DER), if others who trust the same authorities will take it.
fn own_certificate(core: &Core) -> Result<Vec<u8>, SessionError> {
    let identity = core.identity.as_deref().ok_or(SessionError::NotEnrolled)?;
    Ok(identity::holder(&identity.certified.certificate_pem, &core.settings.members)?.1)
}
