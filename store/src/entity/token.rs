//! Tokens: those that enrol a participant once, and those that operators carry. Only hashes of secrets are stored.

use std::collections::BTreeMap;

use async_trait::async_trait;
use federation::id::{Digest, ParticipantId, TokenId};
use federation::time::Timestamp;

use crate::error::Result;

/// A token that enrols one participant, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnrollmentToken {
    /// The row's key.
    pub id: TokenId,
    /// Of the secret.
    pub secret_sha256: Digest,
    /// Whom it enrols anew; none: somebody new.
    pub participant: Option<ParticipantId>,
    /// What the participant will be called; of no meaning for one that is there.
    pub name: String,
    /// What the participant will carry.
    pub labels: BTreeMap<String, String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// From then on it enrols nobody.
    pub expires_at: Timestamp,
    /// When it was used.
    pub used_at: Option<Timestamp>,
    /// Whom it enrolled.
    pub used_by: Option<ParticipantId>,
}

/// What came of trying to use an enrolment token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakenToken {
    /// It is used now, by this call.
    Taken(EnrollmentToken),
    /// No token has this secret.
    Unknown,
    /// Somebody used it before.
    Used(EnrollmentToken),
    /// It expired unused.
    Expired,
}

/// A token that an operator carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorToken {
    /// The row's key.
    pub id: TokenId,
    /// Of the secret.
    pub secret_sha256: Digest,
    /// For people.
    pub name: String,
    /// What it permits, in the coordinator's words.
    pub role: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was revoked, if it was.
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

    /// The enrolment token with this secret, used or expired or not.
    async fn enrollment_token_by_secret(&mut self, secret_sha256: Digest) -> Result<Option<EnrollmentToken>>;

    /// Enrolment tokens in the order of their ids.
    async fn enrollment_tokens(&mut self, cursor: Option<TokenId>, limit: u32) -> Result<Vec<EnrollmentToken>>;

    /// Removes an enrolment token that nobody has used. False if there is none.
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

    /// How many operator tokens with this role are not revoked.
    async fn live_operator_tokens(&mut self, role: &str) -> Result<u32>;

    /// Revokes an operator token. False if there is none, or it is revoked already.
    async fn revoke_operator_token(&mut self, id: TokenId, at: Timestamp) -> Result<bool>;
}
