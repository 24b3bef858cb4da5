//! Tokens in SQLite.

use async_trait::async_trait;
use federation::id::{Digest, ParticipantId, TokenId};
use federation::time::Timestamp;

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _, each, json};
use super::statement::{SqliteRow, query};
use crate::entity::token::{EnrollmentToken, OperatorToken, TakenToken, Tokens};
use crate::error::Result;

#[async_trait]
impl Tokens for SqliteTransaction {
    async fn insert_enrollment_token(&mut self, token: &EnrollmentToken) -> Result<()> {
        self.insert(
            query(
                "INSERT INTO enrollment_token (id, secret_sha256, name, labels, created_at, expires_at, used_at, used_by,
                                               participant)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )
            .bind(token.id.0)
            .digest(token.secret_sha256)
            .bind(&token.name)
            .bind(json(&token.labels)?)
            .time(token.created_at)
            .time(token.expires_at)
            .bind(token.used_at.map(|at| at.0))
            .bind(token.used_by.map(|id| id.0))
            .bind(token.participant.map(|id| id.0)),
        )
        .await
    }

    async fn take_enrollment_token(
        &mut self,
        secret_sha256: Digest,
        now: Timestamp,
        by: ParticipantId,
    ) -> Result<TakenToken> {
        let Some(token) = self.enrollment_token_by_secret(secret_sha256).await? else {
            return Ok(TakenToken::Unknown);
        };
        if token.used_at.is_some() {
            return Ok(TakenToken::Used(token));
        }
        if token.expires_at <= now {
            return Ok(TakenToken::Expired);
        }
        let taken = self
            .change_one(
                query("UPDATE enrollment_token SET used_at = ?2, used_by = ?3 WHERE id = ?1 AND used_at IS NULL")
                    .bind(token.id.0)
                    .time(now)
                    .bind(by.0),
            )
            .await?;
        let token = EnrollmentToken { used_at: Some(now), used_by: Some(by), ..token };
        Ok(if taken { TakenToken::Taken(token) } else { TakenToken::Used(token) })
    }

    async fn enrollment_token_by_secret(&mut self, secret_sha256: Digest) -> Result<Option<EnrollmentToken>> {
        let row =
            self.find(query("SELECT * FROM enrollment_token WHERE secret_sha256 = ?1").digest(secret_sha256)).await?;
        row.as_ref().map(read_enrollment).transpose()
    }

    async fn enrollment_tokens(&mut self, cursor: Option<TokenId>, limit: u32) -> Result<Vec<EnrollmentToken>> {
        let rows = self
            .list(
                query("SELECT * FROM enrollment_token WHERE id > coalesce(?1, x'') ORDER BY id LIMIT ?2")
                    .bind(cursor.map(|id| id.0))
                    .bind(limit),
            )
            .await?;
        each(&rows, read_enrollment)
    }

    async fn revoke_enrollment_token(&mut self, id: TokenId) -> Result<bool> {
        self.change_one(query("DELETE FROM enrollment_token WHERE id = ?1 AND used_at IS NULL").bind(id.0)).await
    }

    async fn insert_operator_token(&mut self, token: &OperatorToken) -> Result<()> {
        self.insert(
            query(
                "INSERT INTO operator_token (id, secret_sha256, name, role, created_at, revoked_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )
            .bind(token.id.0)
            .digest(token.secret_sha256)
            .bind(&token.name)
            .bind(&token.role)
            .time(token.created_at)
            .bind(token.revoked_at.map(|at| at.0)),
        )
        .await
    }

    async fn operator_token_by_secret(&mut self, secret_sha256: Digest) -> Result<Option<OperatorToken>> {
        let row =
            self.find(query("SELECT * FROM operator_token WHERE secret_sha256 = ?1").digest(secret_sha256)).await?;
        row.as_ref().map(read_operator).transpose()
    }

    async fn operator_tokens(&mut self, cursor: Option<TokenId>, limit: u32) -> Result<Vec<OperatorToken>> {
        let rows = self
            .list(
                query("SELECT * FROM operator_token WHERE id > coalesce(?1, x'') ORDER BY id LIMIT ?2")
                    .bind(cursor.map(|id| id.0))
                    .bind(limit),
            )
            .await?;
        each(&rows, read_operator)
    }

    async fn live_operator_tokens(&mut self, role: &str) -> Result<u32> {
        let counted = self
            .find(
                query("SELECT count(*) AS live FROM operator_token WHERE role = ?1 AND revoked_at IS NULL").bind(role),
            )
            .await?;
        counted.map_or(Ok(0), |row| row.small("live"))
    }

    async fn revoke_operator_token(&mut self, id: TokenId, at: Timestamp) -> Result<bool> {
        self.change_one(
            query("UPDATE operator_token SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL").bind(id.0).time(at),
        )
        .await
    }
}

fn read_enrollment(row: &SqliteRow) -> Result<EnrollmentToken> {
    Ok(EnrollmentToken {
        id: TokenId(row.uuid("id")?),
        secret_sha256: row.digest("secret_sha256")?,
        name: row.text("name")?,
        labels: row.json("labels")?,
        created_at: row.time("created_at")?,
        expires_at: row.time("expires_at")?,
        used_at: row.optional_time("used_at")?,
        used_by: row.optional_uuid("used_by")?.map(ParticipantId),
        participant: row.optional_uuid("participant")?.map(ParticipantId),
    })
}

fn read_operator(row: &SqliteRow) -> Result<OperatorToken> {
    Ok(OperatorToken {
        id: TokenId(row.uuid("id")?),
        secret_sha256: row.digest("secret_sha256")?,
        name: row.text("name")?,
        role: row.text("role")?,
        created_at: row.time("created_at")?,
        revoked_at: row.optional_time("revoked_at")?,
    })
}
