//! How a round ends for a participant.

use serde::{Deserialize, Serialize};
use wire::participant::{AbandonReason, RefusalCode};

use crate::participant::api::error::ParticipantError;
use crate::transport::TransportError;

/// How a round ended for this participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::participant) enum RoundEnd {
    /// The update was sent, or was too late.
    Answered,
    GivenUp(AbandonCause),
}

/// Why an attempt was abandoned, as reported to the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::participant) struct AbandonCause {
    #[serde(rename = "given_up")]
    pub(in crate::participant) reason: AbandonReason,
    /// The code of the refusal, if `reason` is [`AbandonReason::Refused`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::participant) refusal: Option<RefusalCode>,
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
pub(in crate::participant) enum LeaveReason {
    GiveUp(AbandonReason),
    DeadlinePassed,
}

/// Why an exchange in a round failed.
pub(in crate::participant) enum ExchangeError {
    /// The round continued without this participant; the coordinator's reason.
    RoundOver(String),
    /// The coordinator rejected the message.
    Rejected(TransportError),
    /// An error that ends the participant.
    Fatal(ParticipantError),
}
