//! Secure aggregation: what a participant is told before it makes keys, and where the messages go.
//!
//! The messages themselves are `secure_agg::messages`, sent as they are encoded there
//! ([`crate::headers::MEDIA_SECURE_AGG`]).

use federation::id::{Digest, TaskId};
use federation::round::RoundState;

use super::SessionTerms;
use crate::base64::Base64;
use serde::{Deserialize, Serialize};

/// A round is about to draw its cohort: make keys for this attempt, and check in with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Invitation {
    /// The task.
    pub task: TaskId,
    /// The round's number.
    pub round: u32,
    /// The round's attempt.
    pub attempt: u32,
    /// What the session will be like; the roster must say the same.
    pub terms: SessionTerms,
    /// `recipe::digest::base_digest` of what the round starts from, where masks alone hide an update: whoever has given one from it before has no
    /// second one, and need not make keys. None where participants add noise of their own, and from older coordinators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Digest>,
}

/// Keys made for an attempt: what a participant that was invited checks in with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RoundKeys {
    /// The task.
    pub task: TaskId,
    /// The round's number.
    pub round: u32,
    /// The round's attempt.
    pub attempt: u32,
    /// `secure_agg::messages::Advertise`.
    pub advertisement: Base64,
}

/// What the coordinator sends to a participant in the course of a session, each by a `GET` that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Announcement {
    /// `Roster`: who takes part, the same for all.
    Roster,
    /// `Delivery`: what the others dealt to this participant.
    Delivery,
    /// `Survivors`: whose inputs are included, the same for all.
    Survivors,
    /// `Agreement`: the signatures on them, the same for all.
    Agreement,
}

impl Announcement {
    /// Every kind, in the order in which they come.
    pub const ALL: [Self; 4] = [Self::Roster, Self::Delivery, Self::Survivors, Self::Agreement];

    /// The state of the round in which it is given out.
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

/// What a participant sends in the course of a session, beside its masked input.
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
    /// Every kind, in the order in which they go.
    pub const ALL: [Self; 4] = [Self::KeyShares, Self::Complaint, Self::Consistency, Self::UnmaskShares];

    /// The state of the round in which it is taken.
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
