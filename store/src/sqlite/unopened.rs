//! Sessions that were never opened, in SQLite.

use async_trait::async_trait;
use federation::id::{Attempt, Digest, RoundKey};

use super::SqliteTransaction;
use crate::entity::unopened::{AbortStatement, Unopened, UnopenedSession};
use crate::error::Result;

columns!(UnopenedSession { group: cohort_group, needed, roster });
record!("abort_statement", AbortStatement { attempt, participant, group: cohort_group, received_at, statement });

#[async_trait]
impl Unopened for SqliteTransaction {
    async fn insert_unopened(&mut self, attempt: Attempt, sessions: &[UnopenedSession]) -> Result<()> {
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

    async fn unopened(&mut self, attempt: Attempt) -> Result<Vec<UnopenedSession>> {
        self.list(
            "SELECT * FROM unopened_session WHERE task = ?1 AND number = ?2 AND attempt = ?3 ORDER BY cohort_group",
            attempt,
        )
        .await
    }

    async fn insert_abort_statement(&mut self, statement: &AbortStatement) -> Result<bool> {
        self.insert_if_absent(statement).await
    }

    async fn abort_statements(&mut self, attempt: Attempt, group: u32) -> Result<Vec<AbortStatement>> {
        self.list(
            "SELECT * FROM abort_statement
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND cohort_group = ?4 ORDER BY participant",
            (attempt, group),
        )
        .await
    }

    async fn count_given(&mut self, base: Digest, but: RoundKey) -> Result<u32> {
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
