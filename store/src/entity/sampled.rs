//! Sampled participants: the draw of an attempt from everybody enrolled, before checking availability.

use std::collections::BTreeMap;

use async_trait::async_trait;
use federation::id::{Attempt, ParticipantId, TaskId};

use crate::error::Result;

/// Reads and changes draws, and counts the population.
#[async_trait]
pub trait Sampled {
    /// The first `limit` participants that carry all these labels and are not revoked, in the order of enrolment, then
    /// of ids.
    async fn population(&mut self, labels: &BTreeMap<String, String>, limit: u32) -> Result<Vec<ParticipantId>>;

    /// Number of participants that carry all these labels, are not revoked, and were in fewer than `max_participations`
    /// cohorts of the task; 0 for no limit.
    async fn count_enrolled(
        &mut self,
        task: TaskId,
        labels: &BTreeMap<String, String>,
        max_participations: u32,
    ) -> Result<u32>;

    /// Records the draw of an attempt. An empty draw leaves no rows; the round stores the size of the draw.
    ///
    /// # Errors
    /// `Conflict` if one of them was drawn for it before, or the attempt or a participant does not exist.
    async fn insert_sampled(&mut self, attempt: Attempt, participants: &[ParticipantId]) -> Result<()>;

    /// Who was drawn for an attempt, in the order of ids.
    async fn sampled(&mut self, attempt: Attempt) -> Result<Vec<ParticipantId>>;

    /// Whether this participant was drawn for an attempt.
    async fn is_sampled(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<bool>;

    /// Forgets who was drawn for an attempt; says how many they were. Who was drawn and who was not should be known to
    /// nobody for longer than the round needs it: the draw amplifies privacy only while it is secret.
    async fn forget_sampled(&mut self, attempt: Attempt) -> Result<u32>;
}
