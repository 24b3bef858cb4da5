//! Assignments: who was drawn into a round, and what became of each.

use std::collections::BTreeMap;

use async_trait::async_trait;
use federation::advance::Tally;
use federation::id::{ParticipantId, RoundKey};
use federation::round::{Assignment, AssignmentState};
use federation::time::Timestamp;

use crate::error::Result;

/// One state that an assignment entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignmentChange {
    /// The state that began.
    pub state: AssignmentState,
    /// When.
    pub at: Timestamp,
    /// The participant's own words or a code.
    pub detail: Option<String>,
}

/// Reads and changes assignments.
#[async_trait]
pub trait Assignments {
    /// Stores a cohort, with the first line of each history, and counts the participations.
    ///
    /// # Errors
    /// `Conflict` if one exists already, or its round or participant does not.
    async fn insert_assignments(&mut self, assignments: &[Assignment]) -> Result<()>;

    /// One participant's place in an attempt.
    async fn assignment(
        &mut self,
        key: RoundKey,
        attempt: u32,
        participant: ParticipantId,
    ) -> Result<Option<Assignment>>;

    /// The cohort of an attempt, in the order of participants' ids.
    async fn assignments(
        &mut self,
        key: RoundKey,
        attempt: u32,
        cursor: Option<ParticipantId>,
        limit: u32,
    ) -> Result<Vec<Assignment>>;

    /// The assignment that a COLLECTING round waits for from this participant; the oldest if there are several.
    async fn pending_assignment(&mut self, participant: ParticipantId) -> Result<Option<Assignment>>;

    /// Changes the state if it is one of `from` now, and writes history. False if it was not.
    #[expect(clippy::too_many_arguments, reason = "three name the row, four the change")]
    async fn set_assignment_state(
        &mut self,
        key: RoundKey,
        attempt: u32,
        participant: ParticipantId,
        from: &[AssignmentState],
        to: AssignmentState,
        at: Timestamp,
        detail: Option<&str>,
    ) -> Result<bool>;

    /// Changes the state of everybody the attempt still waits for, and writes history; says how many.
    async fn set_pending_assignments(
        &mut self,
        key: RoundKey,
        attempt: u32,
        to: AssignmentState,
        at: Timestamp,
    ) -> Result<u32>;

    /// Changes every pending assignment of this participant to REVOKED, and writes history; says in which rounds.
    async fn revoke_pending(&mut self, participant: ParticipantId, at: Timestamp) -> Result<Vec<RoundKey>>;

    /// The facts about an attempt that rows can tell: `pending`, `reported` and `published`. `eligible` is 0: only the
    /// caller knows the task's requirements.
    async fn tally(&mut self, key: RoundKey, attempt: u32) -> Result<Tally>;

    /// How many of the cohort are in each state; states nobody is in are left out.
    async fn count_by_state(&mut self, key: RoundKey, attempt: u32) -> Result<BTreeMap<AssignmentState, u32>>;

    /// Every state one assignment entered, oldest first.
    async fn assignment_history(
        &mut self,
        key: RoundKey,
        attempt: u32,
        participant: ParticipantId,
    ) -> Result<Vec<AssignmentChange>>;
}
