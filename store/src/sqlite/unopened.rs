//! Sessions that were never opened, in SQLite.

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::{Attempt, Digest, ParticipantId, RoundKey};

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _, each};
use super::statement::query;
use crate::entity::unopened::{AbortStatement, Unopened, UnopenedSession};
use crate::error::{Result, StoreError};

#[async_trait]
impl Unopened for SqliteTransaction {
    async fn insert_unopened(&mut self, attempt: Attempt, sessions: &[UnopenedSession]) -> Result<()> {
        for UnopenedSession { group, needed, roster } in sessions {
            self.insert(
                query(
                    "INSERT INTO unopened_session (task, number, attempt, cohort_group, needed, roster)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )
                .attempt(attempt)
                .bind(*group)
                .bind(u32::from(*needed))
                .bind(&roster[..]),
            )
            .await?;
        }
        Ok(())
    }

    async fn unopened(&mut self, attempt: Attempt) -> Result<Vec<UnopenedSession>> {
        let rows = self
            .list(
                query(
                    "SELECT cohort_group, needed, roster FROM unopened_session
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 ORDER BY cohort_group",
                )
                .attempt(attempt),
            )
            .await?;
        each(&rows, |row| {
            let needed = u16::try_from(row.small("needed")?);
            let needed = needed.map_err(|_| StoreError::corrupt("more statements are needed than members"))?;
            Ok(UnopenedSession { group: row.small("cohort_group")?, needed, roster: Bytes::from(row.bytes("roster")?) })
        })
    }

    async fn insert_abort_statement(&mut self, statement: &AbortStatement) -> Result<bool> {
        let AbortStatement { attempt, participant, group, statement, received_at } = statement;
        self.change_one(
            query(
                "INSERT INTO abort_statement (task, number, attempt, participant, cohort_group, received_at, statement)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
            )
            .attempt(*attempt)
            .bind(participant.0)
            .bind(*group)
            .time(*received_at)
            .bind(&statement[..]),
        )
        .await
    }

    async fn abort_statements(&mut self, attempt: Attempt, group: u32) -> Result<Vec<AbortStatement>> {
        let rows = self
            .list(
                query(
                    "SELECT participant, received_at, statement FROM abort_statement
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND cohort_group = ?4 ORDER BY participant",
                )
                .attempt(attempt)
                .bind(group),
            )
            .await?;
        each(&rows, |row| {
            Ok(AbortStatement {
                attempt,
                participant: ParticipantId(row.uuid("participant")?),
                group,
                statement: Bytes::from(row.bytes("statement")?),
                received_at: row.time("received_at")?,
            })
        })
    }

    async fn count_given(&mut self, base: Digest, but: RoundKey) -> Result<u32> {
        let row = self
            .find(
                query(
                    "SELECT COUNT(DISTINCT message.participant) AS given
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
                )
                .digest(base)
                .bind(but.task.0)
                .bind(but.number),
            )
            .await?;
        row.map_or(Ok(0), |row| row.small("given"))
    }
}
