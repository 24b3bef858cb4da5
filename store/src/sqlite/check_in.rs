//! Check-ins in SQLite.

use async_trait::async_trait;
use federation::cohort::Candidate;
use federation::id::{ParticipantId, TaskId};
use federation::time::Timestamp;
use sqlx::query;

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _, each, json, json_ids};
use crate::entity::check_in::{CheckIn, CheckIns};
use crate::error::Result;

#[async_trait]
impl CheckIns for SqliteTransaction {
    async fn upsert_check_ins(&mut self, check_ins: &[CheckIn]) -> Result<()> {
        let rows: Vec<_> = check_ins
            .iter()
            .map(|check_in| {
                (
                    check_in.task.0.simple().to_string(),
                    check_in.participant.0.simple().to_string(),
                    i64::try_from(check_in.examples).unwrap_or(i64::MAX),
                    check_in.checked_in_at,
                    check_in.expires_at,
                )
            })
            .collect();
        self.change(
            query(
                "INSERT INTO check_in (task, participant, examples, checked_in_at, expires_at)
                 SELECT unhex(value ->> 0), unhex(value ->> 1), value ->> 2, value ->> 3, value ->> 4
                 FROM json_each(?1) WHERE true
                 ON CONFLICT (task, participant) DO UPDATE
                 SET examples = excluded.examples, checked_in_at = excluded.checked_in_at,
                     expires_at = excluded.expires_at",
            )
            .bind(json(&rows)?),
        )
        .await?;
        Ok(())
    }

    async fn candidates(&mut self, task: TaskId, now: Timestamp) -> Result<Vec<Candidate>> {
        let rows = self
            .list(
                query(
                    "SELECT check_in.participant, participant.labels, check_in.examples,
                            coalesce(participation.count, 0) AS participations, last_number, last_at
                     FROM check_in
                     JOIN participant ON participant.id = check_in.participant
                     LEFT JOIN participation ON participation.task = check_in.task
                                            AND participation.participant = check_in.participant
                     WHERE check_in.task = ?1 AND check_in.expires_at > ?2 AND participant.revoked_at IS NULL
                       AND NOT EXISTS (SELECT 1 FROM assignment JOIN round USING (task, number, attempt)
                                       WHERE assignment.participant = check_in.participant
                                         AND assignment.state IN ('ASSIGNED', 'WORKING')
                                         AND round.state = 'COLLECTING')
                     ORDER BY participant.name",
                )
                .bind(task.0)
                .time(now),
            )
            .await?;
        each(&rows, |row| {
            Ok(Candidate {
                participant: ParticipantId(row.uuid("participant")?),
                labels: row.json("labels")?,
                examples: row.large("examples")?,
                participations: row.small("participations")?,
                last: row.optional_small("last_number")?.zip(row.optional_time("last_at")?),
            })
        })
    }

    async fn remove_check_ins(&mut self, participants: &[ParticipantId]) -> Result<()> {
        self.change(
            query("DELETE FROM check_in WHERE participant IN (SELECT unhex(value) FROM json_each(?1))")
                .bind(json_ids(participants)?),
        )
        .await?;
        Ok(())
    }

    async fn expire_check_ins(&mut self, now: Timestamp) -> Result<u32> {
        self.count_changes(query("DELETE FROM check_in WHERE expires_at <= ?1").time(now)).await
    }
}
