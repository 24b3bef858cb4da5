//! Assignments: the cohort of a round, and the state of each member.

use async_trait::async_trait;
use federation::advance::Tally;
use federation::groups::GroupTally;
use federation::id::{ParticipantId, RoundKey, TaskId};
use federation::round::{Assignment, AssignmentState, RoundState};
use federation::time::Timestamp;

use crate::error::Result;

/// A state that an assignment entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignmentChange {
    pub state: AssignmentState,
    pub at: Timestamp,
    /// The participant's reason or a code.
    pub detail: Option<String>,
}

/// Reads and changes assignments.
#[async_trait]
pub trait Assignments {
    /// Stores a cohort, with the first history entry of each assignment, and counts the participations.
    ///
    /// # Errors
    /// `Conflict` if an assignment already exists, or its round or participant does not.
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

    /// The assignment in which a round still needs this participant; the oldest if there are several. That is: the
    /// round is SHARING or COLLECTING and the participant has not reported; or the attempt has a session, and the
    /// participant has reported but neither dropped out nor sent its UNMASKING message, the last one required.
    async fn pending_assignment(&mut self, participant: ParticipantId) -> Result<Option<Assignment>>;

    /// Number and attempt of the task's last COMPLETED round for which this participant is REPORTED, so that the sum
    /// contains its input.
    async fn last_counted(&mut self, task: TaskId, participant: ParticipantId) -> Result<Option<(u32, u32)>>;

    /// Changes the state if it is one of `from`, and writes history; returns whether it did. A dropout is recorded with
    /// the round's current state.
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

    /// Changes the state of all participants that have not reported, and writes history; returns their number. A LATE
    /// participant dropped out in COLLECTING, whether or not the round has left that state, or in SHARING if the round
    /// is in it.
    async fn set_pending_assignments(
        &mut self,
        key: RoundKey,
        attempt: u32,
        to: AssignmentState,
        at: Timestamp,
    ) -> Result<u32>;

    /// Stops waiting for this participant: changes every assignment that it has not reported for to REVOKED, and writes
    /// history. In every other [`Assignments::pending_assignment`], where its input is in the sum, records that it
    /// dropped out in the round's state, or in CONFIRMING if the state is still COLLECTING. Returns the rounds
    /// concerned.
    async fn revoke_pending(&mut self, participant: ParticipantId, at: Timestamp) -> Result<Vec<RoundKey>>;

    /// Records that all participants that `phase` still waits for (see [`Assignments::tally`]), and all in the excluded
    /// `groups`, dropped out, unless they did before; returns their number. Those that have not reported become LATE,
    /// with history; the others stay REPORTED. A late input takes at least the time waited
    /// ([`Candidate::duration_ms`](federation::cohort::Candidate::duration_ms)).
    async fn drop_missing(
        &mut self,
        key: RoundKey,
        attempt: u32,
        phase: RoundState,
        groups: &[u32],
        at: Timestamp,
    ) -> Result<u32>;

    /// Records that a participant which has reported dropped out in `phase`. False if it has not reported, or dropped out
    /// before.
    async fn set_dropped(
        &mut self,
        key: RoundKey,
        attempt: u32,
        participant: ParticipantId,
        phase: RoundState,
    ) -> Result<bool>;

    /// The facts about an attempt that rows contain, except `eligible`, which is 0: it depends on the task's
    /// requirements. Who is waited for depends on the attempt's state:
    ///
    /// | State | `answered` | `pending` |
    /// |---|---|---|
    /// | SHARING | SHARES messages | has not reported, and sent no SHARES message |
    /// | COLLECTING | 0 | has not reported |
    /// | CONFIRMING | CONSISTENCY messages | reported, did not drop out, and sent no CONSISTENCY message |
    /// | UNMASKING | UNMASKING messages | reported, did not drop out, sent a CONSISTENCY but no UNMASKING message |
    /// | any other | 0 | 0 |
    async fn tally(&mut self, key: RoundKey, attempt: u32) -> Result<Tally>;

    /// As [`Self::tally`], for each group of a divided cohort, in order, with the number of COMPLAINT messages. Empty
    /// for an undivided cohort.
    async fn group_tallies(&mut self, key: RoundKey, attempt: u32) -> Result<Vec<GroupTally>>;

    /// The states that an assignment entered, oldest first.
    async fn assignment_history(
        &mut self,
        key: RoundKey,
        attempt: u32,
        participant: ParticipantId,
    ) -> Result<Vec<AssignmentChange>>;
}
