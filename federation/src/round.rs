//! The states of a round.
//!
//! ```text
//! SELECTING ──────────────► COLLECTING ─────────────────────────────► AGGREGATING ──► COMPLETED
//!     └──► SHARING ──────────┘  └──► CONFIRMING ──► UNMASKING ─────────┘
//!
//! every state that has not ended ──► FAILED(reason) | CANCELLED
//! ```
//!
//! The lower path is that of secure aggregation. A round that has ended never changes again. A failed round is retried
//! as the next attempt of the same number, unless masked inputs may have left their participants: [`Round::is_spent`].

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::limits::{PhaseLimits, RoundLimits, SecureLimits};

use crate::id::{ParticipantId, RoundKey};
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum RoundState {
    /// Waiting for enough eligible participants to check in; then a cohort is drawn.
    Selecting,
    /// Secure aggregation: the cohort deals shares of the seeds of its masks.
    Sharing,
    /// The cohort trains and uploads masked inputs.
    Collecting,
    /// Secure aggregation: the included participants sign whose inputs are included.
    Confirming,
    /// Secure aggregation: the participants that signed send the shares that open the sum.
    Unmasking,
    /// The included inputs are summed and released, and applied to the model.
    Aggregating,
    /// A model version was published.
    Completed,
    /// Ended without a model version; the round has a [`FailureReason`].
    Failed,
    /// Ended by an operator.
    Cancelled,
}

impl RoundState {
    /// All states, in the order of a round.
    pub const ALL: [Self; 9] = [
        Self::Selecting,
        Self::Sharing,
        Self::Collecting,
        Self::Confirming,
        Self::Unmasking,
        Self::Aggregating,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The possible next states.
    #[must_use]
    pub fn successors(self) -> &'static [Self] {
        match self {
            Self::Selecting => &[Self::Sharing, Self::Collecting, Self::Failed, Self::Cancelled],
            Self::Sharing => &[Self::Collecting, Self::Failed, Self::Cancelled],
            Self::Collecting => &[Self::Confirming, Self::Aggregating, Self::Failed, Self::Cancelled],
            Self::Confirming => &[Self::Unmasking, Self::Failed, Self::Cancelled],
            Self::Unmasking => &[Self::Aggregating, Self::Failed, Self::Cancelled],
            Self::Aggregating => &[Self::Completed, Self::Failed, Self::Cancelled],
            Self::Completed | Self::Failed | Self::Cancelled => &[],
        }
    }

    /// Stable name, as in JSON and in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Selecting => "SELECTING",
            Self::Sharing => "SHARING",
            Self::Collecting => "COLLECTING",
            Self::Confirming => "CONFIRMING",
            Self::Unmasking => "UNMASKING",
            Self::Aggregating => "AGGREGATING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// A name that no variant has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {got:?}")]
pub struct UnknownName {
    /// Kind of name that was expected.
    pub what: &'static str,
    pub got: String,
}

macro_rules! names {
    ($type:ident, $what:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL
                    .into_iter()
                    .find(|value| value.as_str() == text)
                    .ok_or_else(|| UnknownName { what: $what, got: text.to_owned() })
            }
        }
    };
}
pub(crate) use names;

names!(RoundState, "round state");

/// Reasons a round failed, as stable codes for metrics, the API and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum FailureReason {
    /// The selection deadline passed with fewer eligible participants than the minimum.
    TooFewParticipants,
    /// The deadline passed with fewer dealers of key shares than the threshold, or than the required inputs.
    TooFewShares,
    /// The collection deadline passed with fewer masked inputs than the minimum.
    TooFewInputs,
    /// The deadline passed with fewer signatures on the included set than the threshold.
    TooFewConfirmations,
    /// The deadline passed with fewer answers that open the sum than the threshold.
    TooFewUnmaskShares,
    /// A participant complained about key shares that do not open; no input was released.
    BadShares,
    /// So many answers were wrong that the masks could not be restored.
    UnmaskingFailed,
    /// Too many members of the cohort are lost to reach the minimum.
    QuorumLost,
    /// Summing and publishing did not finish by its deadline.
    AggregationTimedOut,
    /// Honest participants cannot have produced the sum of the inputs.
    GarbageSum,
    /// An accepted input is no longer readable.
    InputLost,
    /// More participants were sampled than a sum has headroom for.
    TooManyParticipants,
    /// Releasing the sum would exceed the privacy budget.
    BudgetExceeded,
}

impl FailureReason {
    pub const ALL: [Self; 13] = [
        Self::TooFewParticipants,
        Self::TooFewShares,
        Self::TooFewInputs,
        Self::TooFewConfirmations,
        Self::TooFewUnmaskShares,
        Self::BadShares,
        Self::UnmaskingFailed,
        Self::QuorumLost,
        Self::AggregationTimedOut,
        Self::GarbageSum,
        Self::InputLost,
        Self::TooManyParticipants,
        Self::BudgetExceeded,
    ];

    /// Stable name, as in JSON and in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooFewParticipants => "too_few_participants",
            Self::TooFewShares => "too_few_shares",
            Self::TooFewInputs => "too_few_inputs",
            Self::TooFewConfirmations => "too_few_confirmations",
            Self::TooFewUnmaskShares => "too_few_unmask_shares",
            Self::BadShares => "bad_shares",
            Self::UnmaskingFailed => "unmasking_failed",
            Self::QuorumLost => "quorum_lost",
            Self::AggregationTimedOut => "aggregation_timed_out",
            Self::GarbageSum => "garbage_sum",
            Self::InputLost => "input_lost",
            Self::TooManyParticipants => "too_many_participants",
            Self::BudgetExceeded => "budget_exceeded",
        }
    }
}

names!(FailureReason, "failure reason");

/// One attempt at a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    pub key: RoundKey,
    /// Counts from 1.
    pub attempt: u32,
    pub state: RoundState,
    pub base_version: u32,
    /// Fixed when the round opened.
    pub limits: RoundLimits,
    /// Number of participants assigned; 0 while selecting.
    pub cohort: u32,
    /// Start of the current state (the end of the round, for a terminal state).
    pub state_since: Timestamp,
    pub opened_at: Timestamp,
    /// Set only with [`RoundState::Failed`].
    pub failure: Option<FailureReason>,
}

impl Round {
    /// Duration limit of the current phase; `None` once the round has ended.
    #[must_use]
    pub fn phase_duration(&self) -> Option<Duration> {
        // A round without secure aggregation limits never enters these phases; if it did, they would end at once.
        let secure = |pick: fn(&SecureLimits) -> u64| self.limits.secure.as_ref().map_or(0, pick);
        let millis = match self.state {
            RoundState::Selecting => self.limits.select.deadline_ms,
            RoundState::Sharing => secure(|limits| limits.share_deadline_ms),
            RoundState::Collecting => self.limits.collect.deadline_ms,
            RoundState::Confirming => secure(|limits| limits.confirm_deadline_ms),
            RoundState::Unmasking => secure(|limits| limits.unmask_deadline_ms),
            RoundState::Aggregating => self.limits.aggregate_deadline_ms,
            RoundState::Completed | RoundState::Failed | RoundState::Cancelled => return None,
        };
        Some(Duration::from_millis(millis))
    }

    /// The next phase that needs an answer from a participant whose input was accepted; `None` if there is none.
    #[must_use]
    pub fn missed_in(&self) -> Option<RoundState> {
        self.limits.secure.as_ref()?;
        match self.state {
            RoundState::Collecting | RoundState::Confirming => Some(RoundState::Confirming),
            RoundState::Unmasking => Some(RoundState::Unmasking),
            _ => None,
        }
    }

    /// Number of answers that a secure aggregation phase requires to close; `None` without secure aggregation. Only
    /// dealers send an input: with fewer dealers than required inputs, the round would fail a phase later and be spent.
    #[must_use]
    pub fn answers_needed(&self) -> Option<u32> {
        let threshold = self.limits.secure.as_ref()?.threshold;
        Some(if self.state == RoundState::Sharing { threshold.max(self.limits.collect.min) } else { threshold })
    }

    /// Whether updates or masked inputs may have left their participants.
    #[must_use]
    pub fn may_have_inputs(&self) -> bool {
        matches!(
            self.state,
            RoundState::Collecting | RoundState::Confirming | RoundState::Unmasking | RoundState::Aggregating
        )
    }

    /// Whether masked inputs may have left their participants. If such a round ends without a sum, its number is never
    /// retried: another attempt would release the same updates again, for another set of participants, and the
    /// difference of two such sums is a single update. The next round trains anew.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.limits.secure.is_some() && self.may_have_inputs()
    }

    /// Whether it waits for participants, or failed because there were too few.
    #[must_use]
    pub fn lacks_participants(&self) -> bool {
        self.state == RoundState::Selecting || self.failure == Some(FailureReason::TooFewParticipants)
    }

    /// Deadline of the current phase; `None` once the round has ended.
    #[must_use]
    pub fn deadline_at(&self) -> Option<Timestamp> {
        self.phase_duration().map(|duration| self.state_since.plus(duration))
    }
}

/// State of one member of a cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AssignmentState {
    /// Drawn into the cohort; not heard from since.
    Assigned,
    /// Has fetched its assignment and is working.
    Working,
    /// Its masked input was accepted and is, or will be, part of the sum.
    Reported,
    /// Reported that it cannot continue.
    Abandoned,
    /// An operator decided not to wait for it.
    Excused,
    /// Its certificate was revoked before it reported.
    Revoked,
    /// Had not reported when collection closed.
    Late,
    /// The round ended before collection closed.
    Released,
}

impl AssignmentState {
    pub const ALL: [Self; 8] = [
        Self::Assigned,
        Self::Working,
        Self::Reported,
        Self::Abandoned,
        Self::Excused,
        Self::Revoked,
        Self::Late,
        Self::Released,
    ];

    /// Whether the round still waits for this participant.
    #[must_use]
    pub fn is_pending(self) -> bool {
        matches!(self, Self::Assigned | Self::Working)
    }

    /// Whether the participant dropped out, for whatever reason.
    #[must_use]
    pub fn is_dropped(self) -> bool {
        matches!(self, Self::Abandoned | Self::Excused | Self::Revoked | Self::Late)
    }

    /// Stable name, as in JSON and in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Assigned => "ASSIGNED",
            Self::Working => "WORKING",
            Self::Reported => "REPORTED",
            Self::Abandoned => "ABANDONED",
            Self::Excused => "EXCUSED",
            Self::Revoked => "REVOKED",
            Self::Late => "LATE",
            Self::Released => "RELEASED",
        }
    }
}

names!(AssignmentState, "assignment state");

/// One participant's place in an attempt at a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub round: RoundKey,
    pub attempt: u32,
    pub participant: ParticipantId,
    pub state: AssignmentState,
    pub state_since: Timestamp,
    /// The participant's reason or a code, for [`AssignmentState::Abandoned`]; at most 200 bytes.
    pub detail: Option<String>,
    /// The phase in which it stopped answering, if any. A participant whose input was accepted stays
    /// [`AssignmentState::Reported`] when a later phase misses it.
    pub dropped_in: Option<RoundState>,
    pub assigned_at: Timestamp,
    /// The group it was drawn into, from 0, if the cohort is divided.
    pub group: Option<u32>,
}
