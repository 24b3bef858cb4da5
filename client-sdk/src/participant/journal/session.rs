//! This participant's state of a session of secure aggregation: `secure_agg`'s snapshot and the attempt it belongs to.
//!
//! Memory and journal hold the same. Each step reads the state from the snapshot, consumes it, and yields the next
//! snapshot with the message to send; the message is sent once the snapshot is persisted. So a restarted participant
//! repeats the same bytes, and a second answer is impossible.

use bytes::Bytes;
use secure_agg::batch::draw::MAX_UNFINISHED_DRAWS;
use secure_agg::client::{Client, Snapshot};
use secure_agg::codec::DecodeError;
use secure_agg::messages::RoundId;
use secure_agg::rejection::Refusal;
use wire::base64::Base64;
use wire::participant::{RefusalCode, RoundKeys, SessionTerms};
use wire::{Attempt, Digest, ParticipantId};
use zeroize::Zeroizing;

use super::ahead::UpdateMismatch;
use crate::identity::{CertificateError, IdentityError};
use crate::participant::checks::graphs::GraphRefusal;
use crate::participant::checks::policy::TooStale;
use crate::participant::checks::provenance::ProvenanceError;
use crate::participant::checks::size::TooLarge;
use crate::privacy;

/// Why this participant refuses to take part or to continue. Reported to the app; the coordinator receives
/// [`SessionError::code`].
#[derive(Clone, Debug, thiserror::Error)]
pub(in crate::participant) enum SessionError {
    #[error("{code}: {0}", code = .0.code())]
    Refusal(#[from] Refusal),
    #[error("the own certificate cannot be shown to others: {0}")]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Key(#[from] IdentityError),
    #[error("an update of this or a later round of the task was sent before; another one would tell them apart")]
    Released,
    #[error("the task needs participants in batches of at least {needed}, and this one is in none")]
    NoBatch { needed: u16 },
    #[error(
        "the task needs a batch of {needed}, and this participant is in batch {batch} of {size}: to leave it for another one, \
         which reveals sums over the difference of the two, consent with leave_batch"
    )]
    OtherBatch { batch: Digest, size: u16, needed: u16 },
    #[error("batches of {size} are drawn, and this participant takes part from {floor} on")]
    SmallBatch { size: u16, floor: u16 },
    #[error(
        "this participant has revealed its nonce in {MAX_UNFINISHED_DRAWS} draws that gave no batch, and joins no more"
    )]
    TooManyDraws,
    #[error("the coordinator continues a draw of batches that this participant is not in")]
    NoDraw,
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
    Graph(#[from] GraphRefusal),
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error(transparent)]
    Provenance(#[from] ProvenanceError),
}

impl SessionError {
    /// The code reported to the coordinator.
    pub(in crate::participant) fn code(&self) -> RefusalCode {
        match self {
            Self::Refusal(Refusal::BelowPolicy { .. }) | Self::Uncovered | Self::Staleness(_) => RefusalCode::Policy,
            Self::Refusal(_) | Self::Downgraded => RefusalCode::Protocol,
            Self::Released | Self::Over => RefusalCode::Given,
            Self::Certificate(_) | Self::Key(_) | Self::NoKeys | Self::NotEnrolled => RefusalCode::Keys,
            // These pass with the attempt or with some rounds; the others are of the task.
            Self::Privacy(
                privacy::PrivacyRefusal::Sent
                | privacy::PrivacyRefusal::OtherRelease { .. }
                | privacy::PrivacyRefusal::TooSoon { .. },
            ) => RefusalCode::Given,
            Self::Privacy(_) => RefusalCode::Privacy,
            Self::TrainedAhead(_) => RefusalCode::Assignment,
            Self::NoBatch { .. } | Self::SmallBatch { .. } | Self::OtherBatch { .. } => RefusalCode::Policy,
            Self::TooManyDraws | Self::NoDraw => RefusalCode::Protocol,
            Self::Graph(_) => RefusalCode::App,
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

/// State of a session. It cannot be printed or copied: the snapshot holds its keys.
pub(in crate::participant) struct Session {
    pub(in crate::participant) place: Attempt,
    /// The terms that the keys were made for.
    pub(in crate::participant) terms: SessionTerms,
    /// The model that the session is bound to; `None` before shares are dealt.
    pub(in crate::participant) model: Option<Digest>,
    /// The members, in the roster's order; empty before there is a roster.
    pub(in crate::participant) members: Vec<ParticipantId>,
    pub(in crate::participant) snapshot: Zeroizing<Vec<u8>>,
}

impl Session {
    /// The state, consumed by one step.
    pub(in crate::participant) fn client(&self) -> Result<Client, SessionError> {
        // The bytes were checked when loaded, or written by the same code.
        Client::restore(&self.snapshot).map_err(|_| Refusal::OutOfOrder.into())
    }

    /// The last message sent, byte for byte.
    pub(in crate::participant) fn resend(&self) -> Result<Bytes, SessionError> {
        Ok(self.client()?.resend().into())
    }

    /// The session after a step.
    pub(in crate::participant) fn advance(self, snapshot: &Snapshot) -> Self {
        Self { snapshot: Zeroizing::new(snapshot.expose().to_vec()), ..self }
    }

    /// The keys to check in with, while the cohort is not drawn.
    pub(in crate::participant) fn keys(&self) -> Option<RoundKeys> {
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
pub(in crate::participant) fn round(place: Attempt) -> RoundId {
    RoundId::new(place.task.0.as_bytes(), place.round.into(), place.attempt)
}
