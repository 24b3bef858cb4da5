//! This participant's state of a session of secure aggregation: `secure_agg`'s snapshot and the attempt it belongs to.
//!
//! Memory and journal hold the same. Each step reads the state from the snapshot, consumes it, and yields the next
//! snapshot with the message to send; the message is sent once the snapshot is persisted. So a restarted participant
//! repeats the same bytes, and no state that could give a second answer exists.

use bytes::Bytes;
use secure_agg::client::{Client, Snapshot};
use secure_agg::codec::DecodeError;
use secure_agg::messages::RoundId;
use secure_agg::rejection::Refusal;
use secure_agg::unopened::Unproven;
use wire::base64::Base64;
use wire::participant::{RefusalCode, RoundKeys, SessionTerms};
use wire::{Attempt, Digest, ParticipantId};
use zeroize::Zeroizing;

use super::ahead::UpdateMismatch;
use super::policy::TooStale;
use super::provenance::ProvenanceError;
use super::size::TooLarge;
use crate::identity::{CertificateError, IdentityError};
use crate::privacy;

/// Why this participant refuses to take part or to continue. Reported to the app; the coordinator receives
/// [`SessionError::code`].
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
    BaseUsed,
    #[error("what was shown does not prove that an update given from this very model before is in no sum: {0}")]
    Unproven(#[from] Unproven),
    #[error("this participant has given updates from as many models as it can remember")]
    UsedBasesFull,
    #[error("this attempt at the round, or a later one, is over for this participant")]
    Over,
    #[error("the round is without secure aggregation, which this participant demands")]
    Uncovered,
    #[error("keys were asked for, but now the round is without secure aggregation")]
    Downgraded,
    #[error("this participant holds no keys for the round")]
    NoKeys,
    #[error(transparent)]
    Privacy(#[from] privacy::PrivacyRefusal),
    #[error("not enrolled")]
    NotEnrolled,
    #[error(transparent)]
    TrainedAhead(#[from] UpdateMismatch),
    #[error(transparent)]
    Staleness(#[from] TooStale),
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error(transparent)]
    Provenance(#[from] ProvenanceError),
}

impl SessionError {
    /// The code reported to the coordinator.
    pub(super) fn code(&self) -> RefusalCode {
        match self {
            Self::Refusal(Refusal::BelowPolicy { .. }) | Self::Uncovered | Self::Staleness(_) => RefusalCode::Policy,
            Self::Refusal(_) | Self::Downgraded => RefusalCode::Protocol,
            Self::Released | Self::BaseUsed | Self::Unproven(_) | Self::UsedBasesFull | Self::Over => {
                RefusalCode::Given
            }
            Self::Certificate(_) | Self::Key(_) | Self::NoKeys | Self::NotEnrolled => RefusalCode::Keys,
            Self::Privacy(_) => RefusalCode::Privacy,
            Self::TrainedAhead(_) => RefusalCode::Assignment,
            Self::TooLarge(_) => RefusalCode::TooLarge,
            Self::Provenance(_) => RefusalCode::Provenance,
        }
    }
}

impl From<DecodeError> for SessionError {
    fn from(error: DecodeError) -> Self {
        Self::Refusal(error.into())
    }
}

/// State of a session. Neither printable nor copyable: the snapshot holds its keys.
pub(super) struct Session {
    pub(super) place: Attempt,
    /// The terms that the keys were made for.
    pub(super) terms: SessionTerms,
    /// The model that the session is bound to; `None` before shares are dealt.
    pub(super) model: Option<Digest>,
    /// The members, in the roster's order; empty before there is a roster.
    pub(super) members: Vec<ParticipantId>,
    pub(super) snapshot: Zeroizing<Vec<u8>>,
}

impl Session {
    /// The state, consumed by one step.
    pub(super) fn client(&self) -> Result<Client, SessionError> {
        // The bytes were checked when loaded, or written by the same code.
        Client::restore(&self.snapshot).map_err(|_| Refusal::OutOfOrder.into())
    }

    /// The session's id, once there is a roster.
    pub(super) fn id(&self) -> Result<Digest, SessionError> {
        self.client()?.sid().copied().map(Digest).ok_or_else(|| Refusal::OutOfOrder.into())
    }

    /// The last message sent, byte for byte.
    pub(super) fn resend(&self) -> Result<Bytes, SessionError> {
        Ok(self.client()?.resend().into())
    }

    /// The session after a step.
    pub(super) fn advance(self, snapshot: &Snapshot) -> Self {
        Self { snapshot: Zeroizing::new(snapshot.expose().to_vec()), ..self }
    }

    /// The keys to check in with, while the cohort is not drawn.
    pub(super) fn keys(&self) -> Option<RoundKeys> {
        let Attempt { task, round, attempt } = self.place;
        match self.client() {
            Ok(client @ Client::ShareKeys(_)) => {
                Some(RoundKeys { task, round, attempt, advertisement: Base64(client.resend()) })
            }
            _ => None,
        }
    }
}

/// The protocol's id of an attempt.
pub(super) fn round(place: Attempt) -> RoundId {
    RoundId::new(place.task.0.as_bytes(), place.round.into(), place.attempt)
}
