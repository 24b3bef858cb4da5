//! Sampled participants: the draw of an attempt from all enrolled participants, before checking availability.

use std::collections::BTreeMap;

use federation::id::{Attempt, ParticipantId, TaskId};

use crate::error::Result;
use crate::transaction::Transaction;

/// Participants that are not revoked and carry all the labels `?1`.
macro_rules! enrolled {
    () => {
        concat!(" FROM participant WHERE revoked_at IS NULL AND ", carries!("?1"))
    };
}

impl Transaction<'_> {
    /// The first `limit` participants that carry all these labels and are not revoked, in the order of enrolment, then
    /// of ids.
    pub async fn population(&mut self, labels: &BTreeMap<String, String>, limit: u32) -> Result<Vec<ParticipantId>> {
        self.list(concat!("SELECT id", enrolled!(), " ORDER BY enrolled_at, id LIMIT ?2"), (labels, limit)).await
    }

    /// Number of unrevoked participants that carry all these labels and were in fewer than `max_participations` cohorts
    /// of the task. 0 means unlimited.
    pub async fn count_enrolled(
        &mut self,
        task: TaskId,
        labels: &BTreeMap<String, String>,
        max_participations: u32,
    ) -> Result<u32> {
        self.get(
            concat!(
                "SELECT count(*)",
                enrolled!(),
                " AND (?3 = 0 OR NOT EXISTS (
                      SELECT 1 FROM participation
                      WHERE participation.task = ?2 AND participation.participant = participant.id
                        AND participation.count >= ?3))"
            ),
            (labels, task, max_participations),
        )
        .await
    }

    /// Records the draw of an attempt. An empty draw adds zero rows; the round stores the size of the draw.
    ///
    /// # Errors
    /// `Conflict` if one of them was drawn for it before, or the attempt or a participant does not exist.
    pub async fn insert_sampled(&mut self, attempt: Attempt, participants: &[ParticipantId]) -> Result<()> {
        self.change_all(
            "INSERT INTO sampled (task, number, attempt, participant)
             SELECT ?1, ?2, ?3, participant FROM {?4 participant:bytes} AS drawn",
            (attempt, participants),
        )
        .await
    }

    /// The participants that were drawn for an attempt, in the order of ids.
    pub async fn sampled(&mut self, attempt: Attempt) -> Result<Vec<ParticipantId>> {
        self.list(
            "SELECT participant FROM sampled WHERE task = ?1 AND number = ?2 AND attempt = ?3 ORDER BY participant",
            attempt,
        )
        .await
    }

    /// Deletes the draw of an attempt and returns its size. The draw amplifies privacy only while it is secret, so it is
    /// not stored for longer than the round needs it.
    pub async fn forget_sampled(&mut self, attempt: Attempt) -> Result<u32> {
        self.change("DELETE FROM sampled WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }
}
