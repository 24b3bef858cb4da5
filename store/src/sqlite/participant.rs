//! Participants in SQLite.

use async_trait::async_trait;
use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _, each, json, json_ids};
use super::statement::{SqliteRow, query};
use crate::entity::participant::{ParticipantRow, Participants};
use crate::error::Result;

#[async_trait]
impl Participants for SqliteTransaction {
    async fn insert_participant(&mut self, participant: &ParticipantRow) -> Result<()> {
        self.insert(
            query(
                "INSERT INTO participant (id, name, labels, enrolled_at, certificate_fingerprint, previous_fingerprint,
                                          certificate_expires_at, revoked_at, last_seen_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )
            .bind(participant.id.0)
            .bind(&participant.name)
            .bind(json(&participant.labels)?)
            .time(participant.enrolled_at)
            .digest(participant.certificate_fingerprint)
            .bind(participant.previous_fingerprint.map(|digest| digest.0.to_vec()))
            .time(participant.certificate_expires_at)
            .bind(participant.revoked_at.map(|at| at.0))
            .time(participant.last_seen_at),
        )
        .await
    }

    async fn participant(&mut self, id: ParticipantId) -> Result<Option<ParticipantRow>> {
        let row = self.find(query("SELECT * FROM participant WHERE id = ?1").bind(id.0)).await?;
        row.as_ref().map(read).transpose()
    }

    async fn participant_by_name(&mut self, name: &str) -> Result<Option<ParticipantRow>> {
        let row = self.find(query("SELECT * FROM participant WHERE name = ?1").bind(name)).await?;
        row.as_ref().map(read).transpose()
    }

    async fn participant_by_fingerprint(&mut self, fingerprint: Digest) -> Result<Option<ParticipantRow>> {
        let row = self
            .find(
                query("SELECT * FROM participant WHERE certificate_fingerprint = ?1 OR previous_fingerprint = ?1")
                    .digest(fingerprint),
            )
            .await?;
        row.as_ref().map(read).transpose()
    }

    async fn participants(&mut self, cursor: Option<ParticipantId>, limit: u32) -> Result<Vec<ParticipantRow>> {
        let rows = self
            .list(
                query("SELECT * FROM participant WHERE id > coalesce(?1, x'') ORDER BY id LIMIT ?2")
                    .bind(cursor.map(|id| id.0))
                    .bind(limit),
            )
            .await?;
        each(&rows, read)
    }

    async fn set_certificate(
        &mut self,
        id: ParticipantId,
        shown: Digest,
        fingerprint: Digest,
        expires_at: Timestamp,
    ) -> Result<bool> {
        self.change_one(
            query(
                "UPDATE participant
                 SET previous_fingerprint = ?2, certificate_fingerprint = ?3, certificate_expires_at = ?4
                 WHERE id = ?1 AND revoked_at IS NULL AND ?2 IN (certificate_fingerprint, previous_fingerprint)",
            )
            .bind(id.0)
            .digest(shown)
            .digest(fingerprint)
            .time(expires_at),
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
            query(
                "UPDATE participant
                 SET previous_fingerprint = NULL, certificate_fingerprint = ?2, certificate_expires_at = ?3
                 WHERE id = ?1 AND revoked_at IS NULL",
            )
            .bind(id.0)
            .digest(fingerprint)
            .time(expires_at),
        )
        .await
    }

    async fn end_previous_certificate(&mut self, id: ParticipantId, newest: Digest) -> Result<bool> {
        self.change_one(
            query(
                "UPDATE participant SET previous_fingerprint = NULL
                 WHERE id = ?1 AND certificate_fingerprint = ?2 AND previous_fingerprint IS NOT NULL",
            )
            .bind(id.0)
            .digest(newest),
        )
        .await
    }

    async fn revoke_participant(&mut self, id: ParticipantId, at: Timestamp) -> Result<bool> {
        self.change_one(
            query("UPDATE participant SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL").bind(id.0).time(at),
        )
        .await
    }

    async fn touch(&mut self, ids: &[ParticipantId], at: Timestamp) -> Result<()> {
        self.change(
            query(
                "UPDATE participant SET last_seen_at = ?2
                 WHERE id IN (SELECT unhex(value) FROM json_each(?1))",
            )
            .bind(json_ids(ids)?)
            .time(at),
        )
        .await?;
        Ok(())
    }

    async fn participations(&mut self, id: ParticipantId) -> Result<u32> {
        let row = self
            .find(query("SELECT coalesce(sum(count), 0) AS total FROM participation WHERE participant = ?1").bind(id.0))
            .await?;
        row.map_or(Ok(0), |row| row.small("total"))
    }
}

fn read(row: &SqliteRow) -> Result<ParticipantRow> {
    Ok(ParticipantRow {
        id: ParticipantId(row.uuid("id")?),
        name: row.text("name")?,
        labels: row.json("labels")?,
        enrolled_at: row.time("enrolled_at")?,
        certificate_fingerprint: row.digest("certificate_fingerprint")?,
        previous_fingerprint: row.optional_digest("previous_fingerprint")?,
        certificate_expires_at: row.time("certificate_expires_at")?,
        revoked_at: row.optional_time("revoked_at")?,
        last_seen_at: row.time("last_seen_at")?,
    })
}
