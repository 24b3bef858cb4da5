//! Tokens: one-time enrolment tokens and operator tokens. Only hashes of secrets are stored.

use std::collections::BTreeMap;

use async_trait::async_trait;
use federation::id::{Digest, ParticipantId, TokenId};
use federation::time::Timestamp;

use crate::error::Result;

/// A token that enrols one participant, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnrollmentToken {
    pub id: TokenId,
    /// Of the secret.
    pub secret_sha256: Digest,
    /// The existing participant that it lets enrol again; `None` for a new one.
    pub participant: Option<ParticipantId>,
    /// Name of the participant; unused if it already exists.
    pub name: String,
    /// Labels of the participant.
    pub labels: BTreeMap<String, String>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub used_at: Option<Timestamp>,
    pub used_by: Option<ParticipantId>,
}

/// Result of using an enrolment token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakenToken {
    /// This call has used it.
    Taken(EnrollmentToken),
    Unknown,
    /// It was used before.
    Used(EnrollmentToken),
    Expired,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorToken {
    pub id: TokenId,
    /// Of the secret.
    pub secret_sha256: Digest,
    pub name: String,
    /// Its role, as named by the coordinator.
    pub role: String,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

/// Reads and changes tokens.
#[async_trait]
pub trait Tokens {
    /// Stores a new enrolment token.
    ///
    /// # Errors
    /// `Conflict` if the id or the secret exists.
    async fn insert_enrollment_token(&mut self, token: &EnrollmentToken) -> Result<()>;

    /// Uses a token: at most one call ever gets [`TakenToken::Taken`]. The participant `by` must be stored before the
    /// transaction commits.
    async fn take_enrollment_token(
        &mut self,
        secret_sha256: Digest,
        now: Timestamp,
        by: ParticipantId,
    ) -> Result<TakenToken>;

    /// The enrolment token with this secret, in any state.
    async fn enrollment_token_by_secret(&mut self, secret_sha256: Digest) -> Result<Option<EnrollmentToken>>;

    /// Enrolment tokens in the order of their ids.
    async fn enrollment_tokens(&mut self, cursor: Option<TokenId>, limit: u32) -> Result<Vec<EnrollmentToken>>;

    /// Removes an unused enrolment token. False if there is none.
    async fn revoke_enrollment_token(&mut self, id: TokenId) -> Result<bool>;

    /// Stores a new operator token.
    ///
    /// # Errors
    /// `Conflict` if the id or the secret exists.
    async fn insert_operator_token(&mut self, token: &OperatorToken) -> Result<()>;

    /// The operator token with this secret, revoked or not.
    async fn operator_token_by_secret(&mut self, secret_sha256: Digest) -> Result<Option<OperatorToken>>;

    /// Operator tokens in the order of their ids.
    async fn operator_tokens(&mut self, cursor: Option<TokenId>, limit: u32) -> Result<Vec<OperatorToken>>;

    /// Number of operator tokens with this role that are not revoked.
    async fn live_operator_tokens(&mut self, role: &str) -> Result<u32>;

    /// Revokes an operator token. False if there is none, or if it is already revoked.
    async fn revoke_operator_token(&mut self, id: TokenId, at: Timestamp) -> Result<bool>;
}
