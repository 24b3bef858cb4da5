//! Assignments: who was drawn into a round, and what became of each.

use async_trait::async_trait;
use federation::advance::Tally;
use federation::groups::GroupTally;
use federation::id::{Attempt, ParticipantId, RoundKey, TaskId};
use federation::round::{Assignment, AssignmentState, RoundState};
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
    async fn assignment(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<Assignment>>;

    /// The cohort of an attempt, in the order of participants' ids.
    async fn assignments(
        &mut self,
        attempt: Attempt,
        cursor: Option<ParticipantId>,
        limit: u32,
    ) -> Result<Vec<Assignment>>;

    /// The place in which a round still needs this participant; the oldest if there are several. That is: the round is
    /// SHARING or COLLECTING and the participant has not reported; or the attempt has a session, the participant has
    /// reported, and it has neither dropped out nor sent its UNMASKING message, which ends what it is asked for.
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

    /// Nobody waits for this participant any more: changes every assignment that it has not reported for to REVOKED, and
    /// writes history; in every other [`Assignments::pending_assignment`] of it, records that it dropped out in the state
    /// that the round is in, or in CONFIRMING if that is COLLECTING still: its input is in the sum. Says in which rounds.
    async fn revoke_pending(&mut self, participant: ParticipantId, at: Timestamp) -> Result<Vec<RoundKey>>;

    /// Records that everybody `phase` still waits for (see [`Assignments::tally`]), and everybody in one of the `groups` that
    /// are left out in it, dropped out, unless it did before; says how many. Who has not reported is LATE from then on, and
    /// history is written; who has stays REPORTED. Who is late with its input is known to take so long at least
    /// ([`Candidate::duration_ms`](federation::cohort::Candidate::duration_ms)).
    async fn drop_missing(&mut self, attempt: Attempt, phase: RoundState, groups: &[u32], at: Timestamp)
    -> Result<u32>;

    /// Records that a participant which has reported dropped out in `phase`. False if it has not reported, or dropped out
    /// before.
    async fn set_dropped(&mut self, attempt: Attempt, participant: ParticipantId, phase: RoundState) -> Result<bool>;

    /// The facts about an attempt that rows can tell, all but `eligible`, which is 0: only the caller knows the task's
    /// requirements. What is waited for depends on the state that the attempt is in:
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

    /// Every state one assignment entered, oldest first.
    async fn assignment_history(
        &mut self,
        attempt: Attempt,
        participant: ParticipantId,
    ) -> Result<Vec<AssignmentChange>>;
}
