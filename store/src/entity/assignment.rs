//! Assignments: the cohort of a round, and the state of each member.

use async_trait::async_trait;
use federation::advance::Tally;
use federation::groups::GroupTally;
use federation::id::{Attempt, ParticipantId, RoundKey, TaskId};
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
    async fn assignment(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<Assignment>>;

    /// The cohort of an attempt, in the order of participants' ids.
    async fn assignments(
        &mut self,
        attempt: Attempt,
        cursor: Option<ParticipantId>,
        limit: u32,
    ) -> Result<Vec<Assignment>>;

    /// The assignment in which a round still needs this participant; the oldest if there are several. That is: the
    /// round is SHARING or COLLECTING and the participant has not reported; or the attempt has a session, and the
    /// participant has reported but neither dropped out nor sent its UNMASKING message, the last one required.
    async fn pending_assignment(&mut self, participant: ParticipantId) -> Result<Option<Assignment>>;

    /// The last COMPLETED attempt of the task for which this participant is REPORTED: whose sum holds its input.
    async fn last_counted(&mut self, task: TaskId, participant: ParticipantId) -> Result<Option<Attempt>>;

    /// Changes the state if it is one of `from` now, and writes history. False if it was not. Whoever drops out that way
    /// did so in the state that the round is in.
    async fn set_assignment_state(
        &mut self,
        attempt: Attempt,
        participant: ParticipantId,
        from: &[AssignmentState],
        to: AssignmentState,
        at: Timestamp,
        detail: Option<&str>,
    ) -> Result<bool>;

    /// Changes the state of everybody who has not reported, and writes history; says how many. Whoever is LATE dropped out
    /// in COLLECTING, whether the round has left that state already or is about to, or in SHARING if the round is there.
    async fn set_pending_assignments(&mut self, attempt: Attempt, to: AssignmentState, at: Timestamp) -> Result<u32>;

    /// Stops waiting for this participant: changes every assignment that it has not reported for to REVOKED, and writes
    /// history. In every other [`Assignments::pending_assignment`], where its input is in the sum, records that it
    /// dropped out in the round's state, or in CONFIRMING if the state is still COLLECTING. Returns the rounds
    /// concerned.
    async fn revoke_pending(&mut self, participant: ParticipantId, at: Timestamp) -> Result<Vec<RoundKey>>;

    /// Records that all participants that `phase` still waits for (see [`Assignments::tally`]), and all in the excluded
    /// `groups`, dropped out, unless they did before; returns their number. Those that have not reported become LATE,
    /// with history; the others stay REPORTED. A late input takes at least the time waited
    /// ([`Candidate::duration_ms`](federation::cohort::Candidate::duration_ms)).
    async fn drop_missing(&mut self, attempt: Attempt, phase: RoundState, groups: &[u32], at: Timestamp)
    -> Result<u32>;

    /// Records that a participant which has reported dropped out in `phase`. False if it has not reported, or dropped out
    /// before.
    async fn set_dropped(&mut self, attempt: Attempt, participant: ParticipantId, phase: RoundState) -> Result<bool>;

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
    async fn tally(&mut self, attempt: Attempt) -> Result<Tally>;

    /// The same for each group of a cohort that is divided, in their order: whom the state waits for, who answered, who
    /// reported, and who sent a COMPLAINT message. Empty for a cohort that is not.
    async fn group_tallies(&mut self, attempt: Attempt) -> Result<Vec<GroupTally>>;

    /// The states that an assignment entered, oldest first.
    async fn assignment_history(
        &mut self,
        attempt: Attempt,
        participant: ParticipantId,
    ) -> Result<Vec<AssignmentChange>>;
}
