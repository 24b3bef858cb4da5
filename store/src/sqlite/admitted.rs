//! Admitted inputs in SQLite.

use async_trait::async_trait;
use federation::id::{Attempt, ParticipantId};

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _, each, integer, json, json_ids};
use super::statement::{SqliteRow, query};
use crate::entity::admitted::{Admitted, AdmittedInputs, Insertion};
use crate::error::{Result, StoreError};

#[async_trait]
impl AdmittedInputs for SqliteTransaction {
    async fn insert_admitted(&mut self, admitted: &Admitted) -> Result<Insertion> {
        let bytes = integer(admitted.bytes)?;
        let inserted = self
            .change_one(
                query(
                    "INSERT INTO admitted (task, number, attempt, participant, sha256, bytes, accepted_at, folded)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                     ON CONFLICT (task, number, attempt, participant) DO NOTHING",
                )
                .attempt(admitted.attempt)
                .bind(admitted.participant.0)
                .digest(admitted.sha256)
                .bind(bytes)
                .time(admitted.accepted_at)
                .bind(i64::from(admitted.folded)),
            )
            .await?;
        if inserted {
            self.insert(
                query(
                    "UPDATE round SET reported = reported + 1, bytes_up = bytes_up + ?4
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3",
                )
                .attempt(admitted.attempt)
                .bind(bytes),
            )
            .await?;
            // A clock that was set back must not make a duration negative.
            self.change(
                query(
                    "UPDATE participation
                     SET last_duration_ms = (SELECT max(?5 - assigned_at, 0) FROM assignment
                                             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4)
                     WHERE task = ?1 AND participant = ?4",
                )
                .attempt(admitted.attempt)
                .bind(admitted.participant.0)
                .time(admitted.accepted_at),
            )
            .await?;
            return Ok(Insertion::Inserted);
        }
        let found = self.admitted(admitted.attempt, admitted.participant).await?;
        let found = found.ok_or_else(|| StoreError::corrupt("an admitted input exists and does not"))?;
        let same = (found.sha256, found.bytes) == (admitted.sha256, admitted.bytes);
        Ok(if same { Insertion::Same(found) } else { Insertion::Different(found) })
    }

    async fn admitted(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<Admitted>> {
        let row = self
            .find(
                query(
                    "SELECT * FROM admitted
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
                )
                .attempt(attempt)
                .bind(participant.0),
            )
            .await?;
        row.as_ref().map(read).transpose()
    }

    async fn unfolded(&mut self, attempt: Attempt, limit: u32) -> Result<Vec<Admitted>> {
        let rows = self
            .list(
                query(
                    "SELECT * FROM admitted
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND folded = 0
                     ORDER BY accepted_at, participant LIMIT ?4",
                )
                .attempt(attempt)
                .bind(limit),
            )
            .await?;
        each(&rows, read)
    }

    async fn unfolded_count(&mut self, attempt: Attempt) -> Result<u32> {
        let row = self
            .find(
                query(
                    "SELECT count(*) AS count FROM admitted
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND folded = 0",
                )
                .attempt(attempt),
            )
            .await?;
        row.map_or(Ok(0), |row| row.small("count"))
    }

    async fn mark_folded(&mut self, attempt: Attempt, participants: &[ParticipantId]) -> Result<()> {
        let marked = self
            .change(
                query(
                    "UPDATE admitted SET folded = 1
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND folded = 0
                       AND participant IN (SELECT unhex(value) FROM json_each(?4))",
                )
                .attempt(attempt)
                .bind(json_ids(participants)?),
            )
            .await?;
        if marked == participants.len() as u64 {
            return Ok(());
        }
        Err(StoreError::Conflict(format!(
            "{} inputs were to be marked as summed, {marked} of them were not summed before",
            participants.len()
        )))
    }

    async fn set_anomaly_scores(&mut self, attempt: Attempt, scores: &[(ParticipantId, f64)]) -> Result<()> {
        let rows: Vec<_> = scores.iter().map(|(who, score)| (who.0.simple().to_string(), score)).collect();
        let changed = self
            .change(
                query(
                    "UPDATE admitted SET anomaly = told.score
                     FROM (SELECT unhex(value ->> 0) AS participant, value ->> 1 AS score FROM json_each(?4)) AS told
                     WHERE admitted.task = ?1 AND admitted.number = ?2 AND admitted.attempt = ?3
                       AND admitted.participant = told.participant AND told.score IS NOT NULL",
                )
                .attempt(attempt)
                .bind(json(&rows)?),
            )
            .await?;
        if changed == scores.len() as u64 {
            return Ok(());
        }
        Err(StoreError::Conflict(format!("{} inputs were to be given a score, {changed} of them can be", scores.len())))
    }

    async fn anomaly_score(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<f64>> {
        let row = self
            .find(
                query(
                    "SELECT anomaly FROM admitted
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
                )
                .attempt(attempt)
                .bind(participant.0),
            )
            .await?;
        row.map_or(Ok(None), |row| row.optional_real("anomaly"))
    }
}

fn read(row: &SqliteRow) -> Result<Admitted> {
    Ok(Admitted {
        attempt: row.attempt()?,
        participant: ParticipantId(row.uuid("participant")?),
        sha256: row.digest("sha256")?,
        bytes: row.large("bytes")?,
        accepted_at: row.time("accepted_at")?,
        folded: row.flag("folded")?,
    })
}
