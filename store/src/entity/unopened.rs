//! Sessions that ended without a sum after inputs had been sent, and their members' abort statements.
//! Neither are ever removed.

use bytes::Bytes;
use federation::id::{Attempt, Digest, ParticipantId, RoundKey};
use federation::time::Timestamp;

use crate::error::Result;
use crate::transaction::Transaction;

/// The data of such a session that members need for a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnopenedSession {
    /// Number of the cohort's group; 0 if undivided.
    pub group: u32,
    /// Number of statements that prove that it was never opened.
    pub needed: u16,
    /// The roster as announced.
    pub roster: Bytes,
}

/// A member's statement that it left a session for good without answering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbortStatement {
    pub attempt: Attempt,
    pub participant: ParticipantId,
    /// Number of the cohort's group; 0 if undivided.
    pub group: u32,
    pub statement: Bytes,
    pub received_at: Timestamp,
}

columns!(UnopenedSession { group: cohort_group, needed, roster });
record!("abort_statement", AbortStatement { attempt, participant, group: cohort_group, received_at, statement });

impl Transaction<'_> {
    /// Stores the sessions of an attempt that ends without a sum.
    ///
    /// # Errors
    /// `Conflict` if one of them is kept already, or there is no such attempt.
    pub async fn insert_unopened(&mut self, attempt: Attempt, sessions: &[UnopenedSession]) -> Result<()> {
        for UnopenedSession { group, needed, roster } in sessions {
            self.must_change_one(
                "INSERT INTO unopened_session (task, number, attempt, cohort_group, needed, roster)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                (attempt, group, needed, roster),
            )
            .await?;
        }
        Ok(())
    }

    /// The sessions of an attempt that ended without a sum, by group; none for any other attempt.
    pub async fn unopened(&mut self, attempt: Attempt) -> Result<Vec<UnopenedSession>> {
        self.list(
            "SELECT * FROM unopened_session WHERE task = ?1 AND number = ?2 AND attempt = ?3 ORDER BY cohort_group",
            attempt,
        )
        .await
    }

    /// Stores a member's statement; the first one stays. False if there was one.
    ///
    /// # Errors
    /// `Conflict` if the participant has no assignment in the attempt.
    pub async fn insert_abort_statement(&mut self, statement: &AbortStatement) -> Result<bool> {
        self.insert_if_absent(statement).await
    }

    /// What the members of one group of an attempt said, in the order of their ids.
    pub async fn abort_statements(&mut self, attempt: Attempt, group: u32) -> Result<Vec<AbortStatement>> {
        self.list(
            "SELECT * FROM abort_statement
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND cohort_group = ?4 ORDER BY participant",
            (attempt, group),
        )
        .await
    }

    /// Number of participants that have sent a masked input trained from a version with this digest, in any round of
    /// any task except `but`, without those in sessions that are proven unopened.
    pub async fn count_given(&mut self, base: Digest, but: RoundKey) -> Result<u32> {
        self.get(
            "SELECT COUNT(DISTINCT message.participant)
             FROM model_version AS version
             JOIN round ON round.task = version.task AND round.base_version = version.version
             JOIN session_message AS message
                  ON message.task = round.task AND message.number = round.number
                     AND message.attempt = round.attempt AND message.kind = 'INPUT'
             JOIN assignment AS place
                  ON place.task = message.task AND place.number = message.number
                     AND place.attempt = message.attempt AND place.participant = message.participant
             WHERE version.sha256 = ?1 AND NOT (round.task = ?2 AND round.number = ?3)
               AND NOT EXISTS (
                   SELECT 1 FROM unopened_session AS session
                   WHERE session.task = message.task AND session.number = message.number
                     AND session.attempt = message.attempt
                     AND session.cohort_group = COALESCE(place.cohort_group, 0)
                     AND session.needed <= (
                         SELECT COUNT(*) FROM abort_statement AS said
                         WHERE said.task = session.task AND said.number = session.number
                           AND said.attempt = session.attempt AND said.cohort_group = session.cohort_group))",
            (base, but.task, but.number),
        )
        .await
    }
}
