//! Admitted inputs: the receipt behind each update that counts.

use federation::id::{Attempt, Digest, ParticipantId};
use federation::time::Timestamp;

use crate::error::{Result, StoreError};
use crate::transaction::Transaction;

/// An accepted input: once committed, it counts exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub attempt: Attempt,
    pub participant: ParticipantId,
    /// Of the body; also the blob's address.
    pub sha256: Digest,
    /// Size of the body, in bytes.
    pub bytes: u64,
    pub accepted_at: Timestamp,
    /// Whether the partial sum already contains it; its blob is then garbage.
    pub folded: bool,
}

record!("admitted", Admitted { attempt, participant, sha256, bytes, accepted_at, folded });

impl Transaction<'_> {
    /// Admits inputs of participants without one in their attempts; returns how many those are. Existing inputs stay as
    /// they are.
    ///
    /// # Errors
    /// `Conflict` if a participant has no assignment in that attempt; `BeingRemoved`.
    pub async fn insert_admitted(&mut self, inputs: &[Admitted]) -> Result<u32> {
        let rows: Vec<_> = inputs
            .iter()
            .map(|it| (it.attempt, it.participant, it.sha256, it.bytes, it.accepted_at, it.folded))
            .collect();
        let inserted = self
            .change_of(
                inputs.len(),
                "INSERT INTO admitted (task, number, attempt, participant, sha256, bytes, accepted_at, folded)
                 SELECT * FROM {?1 task:bytes number:integer attempt:integer participant:bytes sha256:bytes bytes:integer
                                accepted_at:integer folded:integer} AS new
                 WHERE NOT EXISTS (SELECT 1 FROM doomed WHERE doomed.digest = new.sha256)
                 ON CONFLICT DO NOTHING",
                &rows,
            )
            .await?;
        if inserted as usize != inputs.len() {
            for input in inputs {
                self.must_not_be_doomed(input.sha256).await?;
            }
        }
        // A clock that was set back must not make a duration negative.
        self.change_of(
            inputs.len(),
            "UPDATE participation
             SET last_duration_ms = CASE WHEN admitted.accepted_at > place.assigned_at
                                         THEN admitted.accepted_at - place.assigned_at ELSE 0 END
             FROM {?1 task:bytes number:integer attempt:integer participant:bytes} AS new
             JOIN admitted
               ON admitted.task = new.task AND admitted.number = new.number AND admitted.attempt = new.attempt
              AND admitted.participant = new.participant
             JOIN assignment AS place
               ON place.task = new.task AND place.number = new.number AND place.attempt = new.attempt
              AND place.participant = new.participant
             WHERE participation.task = new.task AND participation.participant = new.participant",
            inputs.iter().map(|input| (input.attempt, input.participant)).collect::<Vec<_>>(),
        )
        .await?;
        Ok(inserted)
    }

    /// The input of one participant.
    pub async fn admitted(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<Admitted>> {
        self.find(
            "SELECT * FROM admitted WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
            (attempt, participant),
        )
        .await
    }

    /// Inputs that are still outside the partial sum, in the order they were accepted.
    pub async fn unfolded(&mut self, attempt: Attempt, limit: u32) -> Result<Vec<Admitted>> {
        self.list(
            "SELECT * FROM admitted WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND folded = 0
             ORDER BY accepted_at, participant LIMIT ?4",
            (attempt, limit),
        )
        .await
    }

    /// How many those are.
    pub async fn unfolded_count(&mut self, attempt: Attempt) -> Result<u32> {
        self.get(
            "SELECT count(*) FROM admitted WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND folded = 0",
            attempt,
        )
        .await
    }

    /// Whose inputs a partial or released sum holds, in the order of ids.
    pub async fn folded(&mut self, attempt: Attempt) -> Result<Vec<ParticipantId>> {
        self.list(
            "SELECT participant FROM admitted
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND folded = 1 ORDER BY participant",
            attempt,
        )
        .await
    }

    /// Stores the digest of a record below that each participant named with its new input. Existing ones stay as they are.
    ///
    /// # Errors
    /// `Conflict` if a participant has no assignment in that attempt.
    pub async fn insert_records_below(&mut self, records: &[(Attempt, ParticipantId, Digest)]) -> Result<u32> {
        self.change_of(
            records.len(),
            "INSERT INTO record_below (task, number, attempt, participant, sha256)
             SELECT * FROM {?1 task:bytes number:integer attempt:integer participant:bytes sha256:bytes} AS new
             WHERE true ON CONFLICT DO NOTHING",
            records,
        )
        .await
    }

    /// Records below that participants named with the inputs in a partial or released sum: ascending, each once.
    pub async fn records_below(&mut self, attempt: Attempt, limit: u32) -> Result<Vec<Digest>> {
        self.list(
            "SELECT DISTINCT record_below.sha256 FROM record_below
             JOIN admitted
               ON admitted.task = record_below.task AND admitted.number = record_below.number
              AND admitted.attempt = record_below.attempt AND admitted.participant = record_below.participant
             WHERE record_below.task = ?1 AND record_below.number = ?2 AND record_below.attempt = ?3 AND admitted.folded = 1
             ORDER BY record_below.sha256 LIMIT ?4",
            (attempt, limit),
        )
        .await
    }

    /// Records that the partial sum contains these inputs.
    ///
    /// # Errors
    /// `Conflict` if one of them is not there or was folded before: the caller's sum would count it twice.
    pub async fn mark_folded(&mut self, attempt: Attempt, participants: &[ParticipantId]) -> Result<()> {
        let marked = self
            .change(
                "UPDATE admitted SET folded = 1
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND folded = 0
                   AND participant IN {?4 participant:bytes}",
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

    /// Records the anomaly scores of these inputs: finite and not negative.
    ///
    /// # Errors
    /// `Conflict` if one of the inputs is missing, or a score is negative or not finite.
    pub async fn set_anomaly_scores(&mut self, attempt: Attempt, scores: &[(ParticipantId, f64)]) -> Result<()> {
        let finite: Vec<_> = scores.iter().filter(|(_, score)| score.is_finite()).copied().collect();
        let changed = self
            .change(
                "UPDATE admitted SET anomaly = told.score
                 FROM {?4 participant:bytes score:real} AS told
                 WHERE admitted.task = ?1 AND admitted.number = ?2 AND admitted.attempt = ?3
                   AND admitted.participant = told.participant",
                (attempt, finite),
            )
            .await?;
        if changed as usize == scores.len() {
            return Ok(());
        }
        Err(StoreError::Conflict(format!("{} inputs were to be given a score, {changed} of them can be", scores.len())))
    }

    /// The score of one participant's input, if it has one.
    pub async fn anomaly_score(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<f64>> {
        let score: Option<Option<f64>> = self
            .find(
                "SELECT anomaly FROM admitted WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
                (attempt, participant),
            )
            .await?;
        Ok(score.flatten())
    }
}
