//! Secure aggregation: the session terms, sent before the participant generates keys, and the routes of messages.
//!
//! The messages themselves are `secure_agg::messages`, sent in their own encoding ([`crate::headers::MEDIA_SECURE_AGG`]).

use federation::id::{Attempt, TaskId};
use federation::round::RoundState;

use serde::{Deserialize, Serialize};

use super::SessionTerms;
use crate::base64::Base64;

/// A round is about to draw its cohort: generate keys for this attempt, and check in with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Invitation {
    pub task: TaskId,
    pub round: u32,
    pub attempt: u32,
    /// The session's terms; the roster must contain the same.
    pub terms: SessionTerms,
}

impl Invitation {
    /// The attempt of the invitation.
    #[must_use]
    pub fn attempt_key(&self) -> Attempt {
        Attempt { task: self.task, round: self.round, attempt: self.attempt }
    }
}

/// Keys made for an attempt: what a participant that was invited checks in with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RoundKeys {
    pub task: TaskId,
    pub round: u32,
    pub attempt: u32,
    /// `secure_agg::messages::Advertise`.
    pub advertisement: Base64,
}

impl RoundKeys {
    /// The attempt of the keys.
    #[must_use]
    pub fn attempt_key(&self) -> Attempt {
        Attempt { task: self.task, round: self.round, attempt: self.attempt }
    }
}

/// The coordinator's messages to a participant during a session, each fetched by a long-polling `GET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Announcement {
    /// `Roster`: the participants; the same for all.
    Roster,
    /// `Delivery`: the shares dealt to this participant.
    Delivery,
    /// `Survivors`: the included inputs; the same for all.
    Survivors,
    /// `Agreement`: the signatures on the survivors; the same for all.
    Agreement,
}

impl Announcement {
    /// Every kind, in protocol order.
    pub const ALL: [Self; 4] = [Self::Roster, Self::Delivery, Self::Survivors, Self::Agreement];

    /// The state of the round in which it is published.
    #[must_use]
    pub fn state(self) -> RoundState {
        match self {
            Self::Roster => RoundState::Sharing,
            Self::Delivery => RoundState::Collecting,
            Self::Survivors => RoundState::Confirming,
            Self::Agreement => RoundState::Unmasking,
        }
    }
}

/// A participant's messages during a session, except its masked input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// `ShareKeys`.
    KeyShares,
    /// `Complaint`, instead of a masked input.
    Complaint,
    /// `Consistency`.
    Consistency,
    /// `Unmasking`.
    UnmaskShares,
}

impl Answer {
    /// Every kind, in protocol order.
    pub const ALL: [Self; 4] = [Self::KeyShares, Self::Complaint, Self::Consistency, Self::UnmaskShares];

    /// The state of the round in which it is accepted.
    #[must_use]
    pub fn state(self) -> RoundState {
        match self {
            Self::KeyShares => RoundState::Sharing,
            Self::Complaint => RoundState::Collecting,
            Self::Consistency => RoundState::Confirming,
            Self::UnmaskShares => RoundState::Unmasking,
        }
    }
}
