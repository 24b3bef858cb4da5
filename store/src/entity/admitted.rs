//! Admitted inputs: the receipt behind each update that counts.

use async_trait::async_trait;
use federation::id::{Attempt, Digest, ParticipantId};
use federation::time::Timestamp;

use crate::error::Result;

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

/// Reads and changes admitted inputs.
#[async_trait]
pub trait AdmittedInputs {
    /// Admits an input, and adds it and its bytes to the round's counts, unless this participant's input is already
    /// there.
    ///
    /// # Errors
    /// `Conflict` if the participant has no assignment in that attempt.
    async fn insert_admitted(&mut self, admitted: &Admitted) -> Result<Insertion>;

    /// The input of one participant.
    async fn admitted(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<Admitted>>;

    /// Inputs that no partial sum holds yet, in the order they were accepted.
    async fn unfolded(&mut self, attempt: Attempt, limit: u32) -> Result<Vec<Admitted>>;

    /// How many those are.
    async fn unfolded_count(&mut self, attempt: Attempt) -> Result<u32>;

    /// Records that the partial sum contains these inputs.
    ///
    /// # Errors
    /// `Conflict` if one of them is not there or was folded before: the caller's sum would count it twice.
    async fn mark_folded(&mut self, attempt: Attempt, participants: &[ParticipantId]) -> Result<()>;

    /// Records the anomaly scores of these inputs: finite and not negative.
    ///
    /// # Errors
    /// `Conflict` if one of them is not there, or a score is none.
    async fn set_anomaly_scores(&mut self, attempt: Attempt, scores: &[(ParticipantId, f64)]) -> Result<()>;

    /// The score of one participant's input, if it has one.
    async fn anomaly_score(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<f64>>;
}
