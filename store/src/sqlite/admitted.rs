//! Admitted inputs in SQLite.

use async_trait::async_trait;
use federation::id::{Attempt, ParticipantId};

use super::SqliteTransaction;
use super::value::Json;
use crate::entity::admitted::{Admitted, AdmittedInputs, Insertion};
use crate::error::{Result, StoreError};

record!("admitted", Admitted { attempt, participant, sha256, bytes, accepted_at, folded });

#[async_trait]
impl AdmittedInputs for SqliteTransaction {
    async fn insert_admitted(&mut self, admitted: &Admitted) -> Result<Insertion> {
        let Admitted { attempt, participant, bytes, accepted_at, .. } = *admitted;
        if self.insert_if_absent(admitted).await? {
            self.must_change_one(
                "UPDATE round SET reported = reported + 1, bytes_up = bytes_up + ?4
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3",
                (attempt, bytes),
            )
            .await?;
            // A clock that was set back must not make a duration negative.
            self.change_all(
                "UPDATE participation
                 SET last_duration_ms = (SELECT max(?5 - assigned_at, 0) FROM assignment
                                         WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4)
                 WHERE task = ?1 AND participant = ?4",
                (attempt, participant, accepted_at),
            )
            .await?;
            return Ok(Insertion::Inserted);
        }
        let found = self.admitted(attempt, participant).await?;
        let found = found.ok_or_else(|| StoreError::corrupt("an admitted input exists and does not"))?;
        let same = (found.sha256, found.bytes) == (admitted.sha256, admitted.bytes);
        Ok(if same { Insertion::Same(found) } else { Insertion::Different(found) })
    }

    async fn admitted(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<Admitted>> {
        self.find(
            "SELECT * FROM admitted WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
            (attempt, participant),
        )
        .await
    }

    async fn unfolded(&mut self, attempt: Attempt, limit: u32) -> Result<Vec<Admitted>> {
        self.list(
            "SELECT * FROM admitted WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND folded = 0
             ORDER BY accepted_at, participant LIMIT ?4",
            (attempt, limit),
        )
        .await
    }

    async fn unfolded_count(&mut self, attempt: Attempt) -> Result<u32> {
        self.get(
            "SELECT count(*) FROM admitted WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND folded = 0",
            attempt,
        )
        .await
    }

    async fn mark_folded(&mut self, attempt: Attempt, participants: &[ParticipantId]) -> Result<()> {
        let marked = self
            .change(
                "UPDATE admitted SET folded = 1
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND folded = 0
                   AND participant IN (SELECT unhex(value) FROM json_each(?4))",
                (attempt, participants),
            )
            .await?;
        if marked as usize == participants.len() {
            return Ok(());
        }
        Err(StoreError::Conflict(format!(
            "{} inputs were to be marked as summed, {marked} of them were not summed before",
            participants.len()
        )))
    }

    async fn set_anomaly_scores(&mut self, attempt: Attempt, scores: &[(ParticipantId, f64)]) -> Result<()> {
        let rows: Vec<_> = scores.iter().map(|(who, score)| (who.0.simple(), score)).collect();
        let changed = self
            .change(
                "UPDATE admitted SET anomaly = told.score
                 FROM (SELECT unhex(value ->> 0) AS participant, value ->> 1 AS score FROM json_each(?4)) AS told
                 WHERE admitted.task = ?1 AND admitted.number = ?2 AND admitted.attempt = ?3
                   AND admitted.participant = told.participant AND told.score IS NOT NULL",
                (attempt, Json(rows)),
            )
            .await?;
        if changed as usize == scores.len() {
            return Ok(());
        }
        Err(StoreError::Conflict(format!("{} inputs were to be given a score, {changed} of them can be", scores.len())))
    }

    async fn anomaly_score(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<f64>> {
        let score: Option<Option<f64>> = self
            .find(
                "SELECT anomaly FROM admitted WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
                (attempt, participant),
            )
            .await?;
        Ok(score.flatten())
    }
}
