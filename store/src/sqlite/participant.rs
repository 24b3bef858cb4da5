//! Participants in SQLite.

use async_trait::async_trait;
use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;

use super::SqliteTransaction;
use crate::entity::participant::{ParticipantRow, Participants};
use crate::error::Result;

record!(
    "participant",
    ParticipantRow {
        id,
        name,
        labels,
        enrolled_at,
        certificate_fingerprint,
        previous_fingerprint,
        certificate_expires_at,
        revoked_at,
        last_seen_at,
    }
);

#[async_trait]
impl Participants for SqliteTransaction {
    async fn insert_participant(&mut self, participant: &ParticipantRow) -> Result<()> {
        self.insert(participant).await
    }

    async fn participant(&mut self, id: ParticipantId) -> Result<Option<ParticipantRow>> {
        self.find("SELECT * FROM participant WHERE id = ?1", id).await
    }

    async fn participant_by_name(&mut self, name: &str) -> Result<Option<ParticipantRow>> {
        self.find("SELECT * FROM participant WHERE name = ?1", name).await
    }

    async fn participant_by_fingerprint(&mut self, fingerprint: Digest) -> Result<Option<ParticipantRow>> {
        self.find(
            "SELECT * FROM participant WHERE certificate_fingerprint = ?1 OR previous_fingerprint = ?1",
            fingerprint,
        )
        .await
    }

    async fn participants(&mut self, cursor: Option<ParticipantId>, limit: u32) -> Result<Vec<ParticipantRow>> {
        self.list("SELECT * FROM participant WHERE id > coalesce(?1, x'') ORDER BY id LIMIT ?2", (cursor, limit)).await
    }

    async fn set_certificate(
        &mut self,
        id: ParticipantId,
        shown: Digest,
        fingerprint: Digest,
        expires_at: Timestamp,
    ) -> Result<bool> {
        self.change_one(
            "UPDATE participant
             SET previous_fingerprint = ?2, certificate_fingerprint = ?3, certificate_expires_at = ?4
             WHERE id = ?1 AND revoked_at IS NULL AND ?2 IN (certificate_fingerprint, previous_fingerprint)",
            (id, shown, fingerprint, expires_at),
        )
        .await
    }

    async fn replace_certificate(
        &mut self,
        id: ParticipantId,
        fingerprint: Digest,
        expires_at: Timestamp,
    ) -> Result<bool> {
        self.change_one(
            "UPDATE participant
             SET previous_fingerprint = NULL, certificate_fingerprint = ?2, certificate_expires_at = ?3
             WHERE id = ?1 AND revoked_at IS NULL",
            (id, fingerprint, expires_at),
        )
        .await
    }

    async fn end_previous_certificate(&mut self, id: ParticipantId, newest: Digest) -> Result<bool> {
        self.change_one(
            "UPDATE participant SET previous_fingerprint = NULL
             WHERE id = ?1 AND certificate_fingerprint = ?2 AND previous_fingerprint IS NOT NULL",
            (id, newest),
        )
        .await
    }

    async fn revoke_participant(&mut self, id: ParticipantId, at: Timestamp) -> Result<bool> {
        self.change_one("UPDATE participant SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL", (id, at)).await
    }

    async fn touch(&mut self, ids: &[ParticipantId], at: Timestamp) -> Result<()> {
        self.change_all(
            "UPDATE participant SET last_seen_at = ?2 WHERE id IN (SELECT unhex(value) FROM json_each(?1))",
            (ids, at),
        )
        .await
    }

    async fn participations(&mut self, id: ParticipantId) -> Result<u32> {
        self.get("SELECT coalesce(sum(count), 0) FROM participation WHERE participant = ?1", id).await
    }
}
