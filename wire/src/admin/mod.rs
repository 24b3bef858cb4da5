//! Bodies of the operator routes that change something.

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
    /// Name of the participant; by default the participant chooses.
    pub name: Option<String>,
    /// Labels of the participant.
    pub labels: BTreeMap<String, String>,
    /// An existing participant with an expired certificate that may enrol again: it keeps its id, name and labels, so
    /// none are given here. By default the token enrols a new participant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub participant: Option<ParticipantId>,
    /// Validity of the token; default one day, at most 30.
    pub valid_for_ms: Option<u64>,
}

/// Answer with the secret, which is shown only this once.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EnrollmentTokenReply {
    pub id: TokenId,
    /// The secret that the participant presents.
    pub token: String,
    pub expires_at: Timestamp,
}

/// An operator's role; each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Role {
    Viewer,
    /// Manage tasks and enrol participants.
    Operator,
    /// Create and revoke operator tokens.
    Admin,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// Stable name, as in JSON and in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// Body of [`crate::route::TASK_REBASE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RebaseTask {
    /// The last round number to skip; by default, the highest that participants report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond: Option<u32>,
}

/// Body of `POST` [`crate::route::OPERATOR_TOKENS`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateOperatorToken {
    /// Name of the owner: 1 to 64 letters, digits, `-`, `_`, `.`.
    pub name: String,
    pub role: Role,
}

/// Answer with the secret, which is shown only this once.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperatorTokenReply {
    pub id: TokenId,
    /// Sent as `Authorization: Bearer …`.
    pub token: String,
}

/// An operator token in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperatorTokenView {
    pub id: TokenId,
    /// Name of the owner.
    pub name: String,
    pub role: Role,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}
