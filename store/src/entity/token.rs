//! Tokens: one-time enrolment tokens and operator tokens. Only hashes of secrets are stored.

use std::collections::BTreeMap;

use federation::event::{EventKind, Fact, Subject};
use federation::id::{Digest, ParticipantId, TaskId, TokenId};
use federation::time::Timestamp;

use crate::driver::{After, Value, document, json};
use crate::error::Result;
use crate::transaction::Transaction;

/// A token that enrols one participant, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnrollmentToken {
    pub id: TokenId,
    /// Digest of the token's secret; the secret is not stored.
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
    /// Digest of the token's secret; the secret is not stored.
    pub secret_sha256: Digest,
    pub name: String,
    /// Its role, as named by the coordinator.
    pub role: String,
    pub created_at: Timestamp,
    /// From then on it does not count; `None`: it counts until it is revoked.
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// Tasks that the token gives access to.
    pub tasks: TaskScope,
}

/// The reason why an operator token has become invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenEnd {
    Revoked,
    /// It ended by itself, at this time.
    Expired(Timestamp),
}

impl OperatorToken {
    /// Why it does not count at `now`; `None` if it does.
    #[must_use]
    pub fn ended(&self, now: Timestamp) -> Option<TokenEnd> {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => Some(TokenEnd::Revoked),
            (None, Some(at)) if at <= now => Some(TokenEnd::Expired(at)),
            (None, _) => None,
        }
    }
}

/// Data that an operator may see and change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TaskScope {
    /// Every task, and everything outside tasks.
    #[default]
    All,
    /// Only these tasks and their parts.
    Only(Vec<TaskId>),
}

impl TaskScope {
    /// Whether it contains a task, or with `None` everything outside tasks.
    #[must_use]
    pub fn has(&self, task: Option<TaskId>) -> bool {
        match self {
            Self::All => true,
            Self::Only(tasks) => task.is_some_and(|task| tasks.contains(&task)),
        }
    }

    /// Its tasks, or the requested one of them. `None`: all tasks, and everything without a task.
    pub(crate) fn tasks(&self, wanted: Option<TaskId>) -> Option<Vec<TaskId>> {
        match (wanted, self) {
            (None, Self::All) => None,
            (Some(task), scope) => Some(if scope.has(Some(task)) { vec![task] } else { Vec::new() }),
            (None, Self::Only(tasks)) => Some(tasks.clone()),
        }
    }
}

values! {
    TaskScope: |scope| match scope {
            Self::All => Value::Null,
            Self::Only(tasks) => json(tasks)?.into(),
        }, |column| match column {
            Value::Null => Ok(Self::All),
            list => document(list).map(Self::Only),
        };
}

record!(
    "enrollment_token",
    EnrollmentToken { id, secret_sha256, name, labels, created_at, expires_at, used_at, used_by, participant }
);
record!("operator_token", OperatorToken { id, secret_sha256, name, role, created_at, expires_at, revoked_at, tasks });

impl Transaction<'_> {
    /// Stores a new enrolment token, and an event.
    ///
    /// # Errors
    /// `Conflict` if the id or the secret exists.
    pub async fn insert_enrollment_token(&mut self, token: &EnrollmentToken) -> Result<()> {
        self.insert(token).await?;
        let facts = [("token", Fact::from(token.id.to_string())), ("expires_at", token.expires_at.into())];
        self.note_event(token.created_at, EventKind::EnrollmentTokenCreated, Subject::Service, facts);
        Ok(())
    }

    /// Uses a token: at most one call ever gets [`TakenToken::Taken`]. The participant `by` must be stored before the
    /// transaction commits.
    pub async fn take_enrollment_token(
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

    /// The enrolment token with this secret, in any state.
    pub async fn enrollment_token_by_secret(&mut self, secret_sha256: Digest) -> Result<Option<EnrollmentToken>> {
        self.find("SELECT * FROM enrollment_token WHERE secret_sha256 = ?1", secret_sha256).await
    }

    /// Enrolment tokens in the order of their ids.
    pub async fn enrollment_tokens(&mut self, cursor: Option<TokenId>, limit: u32) -> Result<Vec<EnrollmentToken>> {
        self.list("SELECT * FROM enrollment_token WHERE id > ?1 ORDER BY id LIMIT ?2", (After(cursor), limit)).await
    }

    /// Removes an unused enrolment token. Returns false if it is unknown or used.
    pub async fn revoke_enrollment_token(&mut self, id: TokenId) -> Result<bool> {
        self.change_one("DELETE FROM enrollment_token WHERE id = ?1 AND used_at IS NULL", id).await
    }

    /// Stores a new operator token, and an event.
    ///
    /// # Errors
    /// `Conflict` if the id or the secret exists.
    pub async fn insert_operator_token(&mut self, token: &OperatorToken) -> Result<()> {
        self.insert(token).await?;
        let (at, kind) = (token.created_at, EventKind::OperatorTokenCreated);
        let facts = [
            ("token", Fact::from(token.id.to_string())),
            ("name", token.name.as_str().into()),
            ("role", token.role.as_str().into()),
        ];
        let expiry = token.expires_at.map(|at| ("expires_at", at.into()));
        let scope = match &token.tasks {
            TaskScope::All => None,
            TaskScope::Only(tasks) => {
                let ids: Vec<_> = tasks.iter().map(TaskId::to_string).collect();
                Some(("tasks", ids.join(",").into()))
            }
        };
        self.note_event(at, kind, Subject::Service, facts.into_iter().chain(expiry).chain(scope));
        Ok(())
    }

    /// The operator token with this secret, revoked or not.
    pub async fn operator_token_by_secret(&mut self, secret_sha256: Digest) -> Result<Option<OperatorToken>> {
        self.find("SELECT * FROM operator_token WHERE secret_sha256 = ?1", secret_sha256).await
    }

    /// The operator token with this id, revoked or not.
    pub async fn operator_token(&mut self, id: TokenId) -> Result<Option<OperatorToken>> {
        self.find("SELECT * FROM operator_token WHERE id = ?1", id).await
    }

    /// Operator tokens in the order of their ids.
    pub async fn operator_tokens(&mut self, cursor: Option<TokenId>, limit: u32) -> Result<Vec<OperatorToken>> {
        self.list("SELECT * FROM operator_token WHERE id > ?1 ORDER BY id LIMIT ?2", (After(cursor), limit)).await
    }

    /// Number of operator tokens with this role that are valid until they are revoked: unrevoked, without an expiry.
    pub async fn lasting_operator_tokens(&mut self, role: &str) -> Result<u32> {
        self.get(
            "SELECT count(*) FROM operator_token WHERE role = ?1 AND revoked_at IS NULL AND expires_at IS NULL",
            role,
        )
        .await
    }

    /// Revokes an operator token, with an event. Returns false if it is unknown or already revoked.
    pub async fn revoke_operator_token(&mut self, id: TokenId, at: Timestamp) -> Result<bool> {
        let revoke = "UPDATE operator_token SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";
        let changed = self.change_one(revoke, (id, at)).await?;
        if changed {
            let facts = [("token", Fact::from(id.to_string()))];
            self.note_event(at, EventKind::OperatorTokenRevoked, Subject::Service, facts);
        }
        Ok(changed)
    }
}
