//! How a round ends for a participant.

use serde::{Deserialize, Serialize};
use wire::participant::{AbandonReason, RefusalCode};

use super::error::ParticipantError;
use crate::transport::TransportError;

/// How a round ended for this participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoundEnd {
    /// Its update was sent, or came too late.
    Answered,
    /// It gave up.
    GivenUp(AbandonCause),
}

/// Why a place was given up, as the coordinator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AbandonCause {
    #[serde(rename = "given_up")]
    pub(super) reason: AbandonReason,
    /// What was refused, if that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refusal: Option<RefusalCode>,
}

impl From<AbandonReason> for AbandonCause {
    fn from(reason: AbandonReason) -> Self {
        Self { reason, refusal: None }
    }
}

impl From<RefusalCode> for AbandonCause {
    fn from(refusal: RefusalCode) -> Self {
        Self { reason: AbandonReason::Refused, refusal: Some(refusal) }
    }
}

/// Why a round is left before its update is made.
pub(super) enum LeaveReason {
    GiveUp(AbandonReason),
    DeadlinePassed,
}

/// Why there is no going on in this round.
pub(super) enum ExchangeError {
    /// The round went on without this participant; as the coordinator says.
    RoundOver(String),
    /// The coordinator takes none such.
    Rejected(TransportError),
    /// There is no going on at all.
    Fatal(ParticipantError),
}
