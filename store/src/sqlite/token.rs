//! Tokens in SQLite.

use async_trait::async_trait;
use federation::id::{Digest, ParticipantId, TokenId};
use federation::time::Timestamp;

use super::SqliteTransaction;
use crate::entity::token::{EnrollmentToken, OperatorToken, TakenToken, Tokens};
use crate::error::Result;

record!(
    "enrollment_token",
    EnrollmentToken { id, secret_sha256, name, labels, created_at, expires_at, used_at, used_by, participant }
);
record!("operator_token", OperatorToken { id, secret_sha256, name, role, created_at, revoked_at });

#[async_trait]
impl Tokens for SqliteTransaction {
    async fn insert_enrollment_token(&mut self, token: &EnrollmentToken) -> Result<()> {
        self.insert(token).await
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
                "UPDATE enrollment_token SET used_at = ?2, used_by = ?3 WHERE id = ?1 AND used_at IS NULL",
                (token.id, now, by),
            )
            .await?;
        let token = EnrollmentToken { used_at: Some(now), used_by: Some(by), ..token };
        Ok(if taken { TakenToken::Taken(token) } else { TakenToken::Used(token) })
    }

    async fn enrollment_token_by_secret(&mut self, secret_sha256: Digest) -> Result<Option<EnrollmentToken>> {
        self.find("SELECT * FROM enrollment_token WHERE secret_sha256 = ?1", secret_sha256).await
    }

    async fn enrollment_tokens(&mut self, cursor: Option<TokenId>, limit: u32) -> Result<Vec<EnrollmentToken>> {
        self.list("SELECT * FROM enrollment_token WHERE id > coalesce(?1, x'') ORDER BY id LIMIT ?2", (cursor, limit))
            .await
    }

    async fn revoke_enrollment_token(&mut self, id: TokenId) -> Result<bool> {
        self.change_one("DELETE FROM enrollment_token WHERE id = ?1 AND used_at IS NULL", id).await
    }

    async fn insert_operator_token(&mut self, token: &OperatorToken) -> Result<()> {
        self.insert(token).await
    }

    async fn operator_token_by_secret(&mut self, secret_sha256: Digest) -> Result<Option<OperatorToken>> {
        self.find("SELECT * FROM operator_token WHERE secret_sha256 = ?1", secret_sha256).await
    }

    async fn operator_tokens(&mut self, cursor: Option<TokenId>, limit: u32) -> Result<Vec<OperatorToken>> {
        self.list("SELECT * FROM operator_token WHERE id > coalesce(?1, x'') ORDER BY id LIMIT ?2", (cursor, limit))
            .await
    }

    async fn live_operator_tokens(&mut self, role: &str) -> Result<u32> {
        self.get("SELECT count(*) FROM operator_token WHERE role = ?1 AND revoked_at IS NULL", role).await
    }

    async fn revoke_operator_token(&mut self, id: TokenId, at: Timestamp) -> Result<bool> {
        self.change_one("UPDATE operator_token SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL", (id, at))
            .await
    }
}
