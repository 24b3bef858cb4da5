//! How a round ends for a participant.

use serde::{Deserialize, Serialize};
use wire::participant::{AbandonReason, RefusalCode};

use super::error::ParticipantError;
use crate::transport::TransportError;

/// How a round ended for this participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Its update was sent, or came too late.
    Answered,
    /// It gave up.
    GivenUp(GivenUp),
}

/// Why a place was given up, as the coordinator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GivenUp {
    #[serde(rename = "given_up")]
    pub(super) reason: AbandonReason,
    /// What was refused, if that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refusal: Option<RefusalCode>,
}

impl From<AbandonReason> for GivenUp {
    fn from(reason: AbandonReason) -> Self {
        Self { reason, refusal: None }
    }
}

impl From<RefusalCode> for GivenUp {
    fn from(refusal: RefusalCode) -> Self {
        Self { reason: AbandonReason::Refused, refusal: Some(refusal) }
    }
}

/// Why a round is left before its update is made.
pub(super) enum Leave {
    GiveUp(AbandonReason),
    DeadlinePassed,
}

/// Why there is no going on in this round.
pub(super) enum Left {
    /// The round went on without this participant; as the coordinator says.
    Over(String),
    /// The coordinator takes none such.
    Refused(TransportError),
    /// There is no going on at all.
    End(ParticipantError),
}
