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
    /// Whether the partial sum already contains it; its blob is then no longer needed.
    pub folded: bool,
}

/// Result of admitting an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// It counts from now on.
    Inserted,
    /// The same bytes were admitted before; this is their row.
    Same(Admitted),
    /// Other bytes were admitted before; they stay.
    Different(Admitted),
}

record!("admitted", Admitted { attempt, participant, sha256, bytes, accepted_at, folded });

impl Transaction<'_> {
    /// Admits an input, and adds it and its bytes to the round's counts, unless this participant's input is already
    /// there.
    ///
    /// # Errors
    /// `Conflict` if the participant has no assignment in that attempt; `BeingRemoved`.
    pub async fn insert_admitted(&mut self, admitted: &Admitted) -> Result<Insertion> {
        let Admitted { attempt, participant, bytes, accepted_at, .. } = *admitted;
        self.must_not_be_doomed(admitted.sha256).await?;
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
                 SET last_duration_ms = (SELECT CASE WHEN ?5 > assigned_at THEN ?5 - assigned_at ELSE 0 END FROM assignment
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

    /// The input of one participant.
    pub async fn admitted(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<Admitted>> {
        self.find(
            "SELECT * FROM admitted WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
            (attempt, participant),
        )
        .await
    }

    /// Inputs that no partial sum holds yet, in the order they were accepted.
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
    /// `Conflict` if one of them is not there, or a score is none.
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
