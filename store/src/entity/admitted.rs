//! Admitted inputs: the receipt behind each update that counts.

use async_trait::async_trait;
use federation::id::{Digest, ParticipantId, RoundKey};
use federation::time::Timestamp;

use crate::error::Result;

/// An accepted input: once committed, it counts exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub round: RoundKey,
    pub attempt: u32,
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
    async fn admitted(&mut self, key: RoundKey, attempt: u32, participant: ParticipantId) -> Result<Option<Admitted>>;

    /// Inputs that no partial sum contains yet, in order of acceptance.
    async fn unfolded(&mut self, key: RoundKey, attempt: u32, limit: u32) -> Result<Vec<Admitted>>;

    /// Number of [`Self::unfolded`] inputs.
    async fn unfolded_count(&mut self, key: RoundKey, attempt: u32) -> Result<u32>;

    /// Records that the partial sum contains these inputs.
    ///
    /// # Errors
    /// `Conflict` if one of them is missing or was folded before: the caller's sum would count it twice.
    async fn mark_folded(&mut self, key: RoundKey, attempt: u32, participants: &[ParticipantId]) -> Result<()>;

    /// Records the anomaly scores of these inputs: finite and not negative.
    ///
    /// # Errors
    /// `Conflict` if one of them is missing, or a score is invalid.
    async fn set_anomaly_scores(&mut self, key: RoundKey, attempt: u32, scores: &[(ParticipantId, f64)]) -> Result<()>;

    /// The score of one participant's input, if it has one.
    async fn anomaly_score(&mut self, key: RoundKey, attempt: u32, participant: ParticipantId) -> Result<Option<f64>>;
}
