//! Bodies of the operators' routes that change something.

use std::collections::BTreeMap;

use federation::id::{ParticipantId, TokenId};
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};
use task_spec::TaskSpec;

/// Body of `POST` [`crate::route::TASKS`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateTask {
    /// The task as it will be stored.
    pub spec: TaskSpec,
}

/// Body of `POST` [`crate::route::ENROLLMENT_TOKENS`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateEnrollmentToken {
    /// Name the participant will have; without it the participant chooses.
    pub name: Option<String>,
    /// Labels the participant will carry.
    pub labels: BTreeMap<String, String>,
    /// Whom the token lets come back whose certificate has ended: it keeps its id, its name and its labels, so none are given
    /// here. Without it, the token enrols somebody new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub participant: Option<ParticipantId>,
    /// How long the token can be used; default one day, at most 30.
    pub valid_for_ms: Option<u64>,
}

/// Answer: the secret is shown this once.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EnrollmentTokenReply {
    /// The row.
    pub id: TokenId,
    /// What the participant presents.
    pub token: String,
    /// When it can no longer be used.
    pub expires_at: Timestamp,
}

task_spec::named_enum! {
    /// What an operator may do; each role may do what those before it may.
    #[derive(PartialOrd, Ord)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum Role {
        /// Look.
        Viewer = "viewer",
        /// Run tasks and enrol participants.
        Operator = "operator",
        /// Make and revoke operators' tokens.
        Admin = "admin",
    }
}

/// Body of [`crate::route::TASK_REBASE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RebaseTask {
    /// The last round number that is not used again; without it, what participants say they have seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond: Option<u32>,
}

/// Body of `POST` [`crate::route::OPERATOR_TOKENS`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateOperatorToken {
    /// Whose it is: 1 to 64 letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// What it allows.
    pub role: Role,
}

/// Answer: the secret is shown this once.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperatorTokenReply {
    /// The row.
    pub id: TokenId,
    /// Sent as `Authorization: Bearer …`.
    pub token: String,
}

/// An operator token as it is listed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperatorTokenView {
    /// The row.
    pub id: TokenId,
    /// Whose it is.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_pinned() {
        assert_eq!(Role::ALL.map(Role::as_str), ["viewer", "operator", "admin"]);
        assert_eq!(serde_json::to_value(Role::ALL).unwrap(), serde_json::json!(["viewer", "operator", "admin"]));
    }
}
