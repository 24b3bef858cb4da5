//! The states of a round.
//!
//! ```text
//! SELECTING ──────────────► COLLECTING ─────────────────────────────► AGGREGATING ──► COMPLETED
//!     └──► SHARING ──────────┘  └──► CONFIRMING ──► UNMASKING ─────────┘
//!
//! every state that has not ended ──► FAILED(reason) | CANCELLED
//! ```
//!
//! The lower path is that of secure aggregation. An ended round is final. A failed round is retried as the next attempt of the same number,
//! unless masked inputs may have left their participants: [`Round::is_spent`].

use std::time::Duration;

pub use crate::limits::{PhaseLimits, RoundLimits, SecureLimits};

use crate::id::{Attempt, ParticipantId};
use crate::time::Timestamp;

task_spec::named_enum! {
    /// Where a round stands.
    #[derive(PartialOrd, Ord)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum RoundState: "round state" {
        /// Waiting for enough eligible participants to check in; then a cohort is drawn.
        Selecting = "SELECTING",
        /// Secure aggregation: the cohort deals shares of the seeds of its masks.
        Sharing = "SHARING",
        /// The cohort trains and uploads masked inputs.
        Collecting = "COLLECTING",
        /// Secure aggregation: the included participants sign whose inputs are included.
        Confirming = "CONFIRMING",
        /// Secure aggregation: those who signed answer with the shares that open the sum.
        Unmasking = "UNMASKING",
        /// The included inputs are summed, released and stepped into a new model version.
        Aggregating = "AGGREGATING",
        /// A model version was published.
        Completed = "COMPLETED",
        /// Ended without a model version; the round has a [`FailureReason`].
        Failed = "FAILED",
        /// Ended by an operator.
        Cancelled = "CANCELLED",
    }
}

impl RoundState {
    /// Whether the round is over.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

task_spec::named_enum! {
    /// Why a round failed: a stable code that metrics, the API and tests speak.
    #[derive(PartialOrd, Ord)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum FailureReason: "failure reason" {
        /// The selection deadline passed with fewer eligible participants than the minimum.
        TooFewParticipants = "too_few_participants",
        /// The deadline passed with fewer dealers of key shares than the threshold, or than inputs are needed.
        TooFewShares = "too_few_shares",
        /// The collection deadline passed with fewer masked inputs than the minimum.
        TooFewInputs = "too_few_inputs",
        /// The deadline passed with fewer signatures on the included set than the threshold.
        TooFewConfirmations = "too_few_confirmations",
        /// The deadline passed with fewer answers that open the sum than the threshold.
        TooFewUnmaskShares = "too_few_unmask_shares",
        /// A participant complained about key shares that do not open; no input was released.
        BadShares = "bad_shares",
        /// So many answers were wrong that the masks could not be restored.
        UnmaskingFailed = "unmasking_failed",
        /// So many of the cohort are lost that the minimum cannot be reached any more.
        QuorumLost = "quorum_lost",
        /// Summing and publishing did not finish by its deadline.
        AggregationTimedOut = "aggregation_timed_out",
        /// The sum of the inputs was not one that honest participants could have made.
        GarbageSum = "garbage_sum",
        /// An input that was accepted is no longer readable.
        InputLost = "input_lost",
        /// More participants were sampled than one sum has room for.
        TooManyParticipants = "too_many_participants",
        /// Releasing the sum would have cost more than is left of the privacy budget.
        BudgetExceeded = "budget_exceeded",
    }
}

/// One attempt at a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// Task, number and attempt.
    pub key: Attempt,
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
        // A round without secure aggregation limits skips these phases; otherwise they would end at once.
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

    /// The next phase that needs an answer from a participant with an accepted input, if any.
    #[must_use]
    pub fn missed_in(&self) -> Option<RoundState> {
        self.limits.secure.as_ref()?;
        match self.state {
            RoundState::Collecting | RoundState::Confirming => Some(RoundState::Confirming),
            RoundState::Unmasking => Some(RoundState::Unmasking),
            RoundState::Selecting
            | RoundState::Sharing
            | RoundState::Aggregating
            | RoundState::Completed
            | RoundState::Failed
            | RoundState::Cancelled => None,
        }
    }

    /// Number of answers required to close a secure aggregation phase; `None` without secure aggregation. Only dealers send an input: with
    /// fewer dealers than required inputs, the round would fail a phase later and be spent.
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

    /// Whether masked inputs may have left their participants. If such a round ends without a sum, its number is not retried: a participant
    /// sends one input per round number. The next round has fresh keys and trains anew.
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

task_spec::named_enum! {
    /// Where one participant of a cohort stands.
    #[derive(PartialOrd, Ord)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum AssignmentState: "assignment state" {
        /// Drawn into the cohort; has not been heard of since.
        Assigned = "ASSIGNED",
        /// Has fetched its assignment and is at work.
        Working = "WORKING",
        /// Its masked input was accepted and is, or will be, part of the sum.
        Reported = "REPORTED",
        /// Told the coordinator that it cannot go on.
        Abandoned = "ABANDONED",
        /// An operator said not to wait for it.
        Excused = "EXCUSED",
        /// Its certificate was revoked before it reported.
        Revoked = "REVOKED",
        /// Had not reported when collection closed.
        Late = "LATE",
        /// The round ended before collection closed.
        Released = "RELEASED",
    }
}

impl AssignmentState {
    /// Whether the round still waits for this participant.
    #[must_use]
    pub fn is_pending(self) -> bool {
        matches!(self, Self::Assigned | Self::Working)
    }

    /// Whether the participant dropped out, for any reason.
    #[must_use]
    pub fn is_dropped(self) -> bool {
        matches!(self, Self::Abandoned | Self::Excused | Self::Revoked | Self::Late)
    }
}

/// One participant's place in one attempt of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub attempt: Attempt,
    pub participant: ParticipantId,
    pub state: AssignmentState,
    pub state_since: Timestamp,
    /// The participant's reason or a code, for [`AssignmentState::Abandoned`]; at most 200 bytes.
    pub detail: Option<String>,
    /// The phase in which it stopped answering, if any. A participant whose input was accepted stays [`AssignmentState::Reported`] if it
    /// misses a later phase.
    pub dropped_in: Option<RoundState>,
    pub assigned_at: Timestamp,
    /// The group it was drawn into, from 0, if the cohort is divided.
    pub group: Option<u32>,
}
