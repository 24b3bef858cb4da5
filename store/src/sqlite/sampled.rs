//! Sampled participants in SQLite.

use std::collections::BTreeMap;

use async_trait::async_trait;
use federation::id::{Attempt, ParticipantId, TaskId};

use super::SqliteTransaction;
use crate::entity::sampled::Sampled;
use crate::error::Result;

/// Participants that are not revoked and carry all the labels `?1`.
macro_rules! enrolled {
    () => {
        " FROM participant
         WHERE revoked_at IS NULL
           AND NOT EXISTS (
               SELECT 1 FROM json_each(?1) AS wanted
               WHERE NOT EXISTS (SELECT 1 FROM json_each(participant.labels) AS carried
                                 WHERE carried.key = wanted.key AND carried.value = wanted.value))"
    };
}

#[async_trait]
impl Sampled for SqliteTransaction {
    async fn population(&mut self, labels: &BTreeMap<String, String>, limit: u32) -> Result<Vec<ParticipantId>> {
        self.list(concat!("SELECT id", enrolled!(), " ORDER BY enrolled_at, id LIMIT ?2"), (labels, limit)).await
    }

    async fn count_enrolled(
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

    async fn insert_sampled(&mut self, attempt: Attempt, participants: &[ParticipantId]) -> Result<()> {
        self.change_all(
            "INSERT INTO sampled (task, number, attempt, participant)
             SELECT ?1, ?2, ?3, unhex(value) FROM json_each(?4)",
            (attempt, participants),
        )
        .await
    }

    async fn sampled(&mut self, attempt: Attempt) -> Result<Vec<ParticipantId>> {
        self.list(
            "SELECT participant FROM sampled WHERE task = ?1 AND number = ?2 AND attempt = ?3 ORDER BY participant",
            attempt,
        )
        .await
    }

    async fn is_sampled(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<bool> {
        self.get(
            "SELECT EXISTS (SELECT 1 FROM sampled
                            WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4)",
            (attempt, participant),
        )
        .await
    }

    async fn forget_sampled(&mut self, attempt: Attempt) -> Result<u32> {
        self.change("DELETE FROM sampled WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }
}
