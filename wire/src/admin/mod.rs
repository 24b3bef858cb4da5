//! Bodies of the operator routes that change state.

use std::collections::BTreeMap;

use federation::id::{Digest, ParticipantId, TaskId, TokenId};
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};
use task_spec::TaskSpec;

/// Paths of the operator routes that change state.
pub mod route {
    /// `POST`: stop opening rounds.
    pub const TASK_PAUSE: &str = "/v1/tasks/{task}/pause";
    /// `POST`: resume a paused task.
    pub const TASK_RESUME: &str = "/v1/tasks/{task}/resume";
    /// `POST`: end the task and its current round.
    pub const TASK_CANCEL: &str = "/v1/tasks/{task}/cancel";
    /// `POST`: skip all round numbers that participants have seen.
    pub const TASK_REBASE: &str = "/v1/tasks/{task}/rebase";
    /// `PUT`: the manifest of a model file for later tasks ([`super::ModelFile`]). Its parts are uploaded separately. The reply,
    /// [`super::ModelFileReply`], lists the missing parts.
    pub const MODEL_FILE: &str = "/v1/model-files/{sha256}";
    /// `PUT`: a part of 8 MiB of such a file, by its own SHA-256; the last part may be shorter. 204.
    pub const MODEL_FILE_PART: &str = "/v1/model-file-parts/{sha256}";
    /// `POST`: keep this model versionregardless of the task's retention.
    pub const MODEL_PIN: &str = "/v1/tasks/{task}/models/{version}/pin";
    /// `POST`: remove the pin, so that the task's retention applies again.
    pub const MODEL_UNPIN: &str = "/v1/tasks/{task}/models/{version}/unpin";
    /// `POST`: publish this model version again, as the newest.
    pub const MODEL_RESTORE: &str = "/v1/tasks/{task}/models/{version}/restore";
    /// `POST`: release this model version for use.
    pub const MODEL_PROMOTE: &str = "/v1/tasks/{task}/models/{version}/promote";
    /// `PUT`, by an inference server that reads the task: its report, [`crate::inspect::ServerReport`]. `DELETE`: unregister it.
    pub const TASK_SERVER: &str = "/v1/tasks/{task}/servers/{server}";
    /// `POST`: stop waiting for this participant in this round.
    pub const EXCUSE: &str = "/v1/tasks/{task}/rounds/{round}/assignments/{participant}/excuse";
    /// `POST`: revoke the participant's certificate.
    pub const PARTICIPANT_REVOKE: &str = "/v1/participants/{participant}/revoke";
    /// `POST`: a one-time token for one participant. [`super::CreateEnrollmentToken`].
    pub const ENROLLMENT_TOKENS: &str = "/v1/enrollment-tokens";
    /// `GET`, `POST`: operator tokens. [`super::CreateOperatorToken`].
    pub const OPERATOR_TOKENS: &str = "/v1/operator-tokens";
    /// `GET`, with any token: the token's permissions, [`super::BearerView`].
    pub const OPERATOR_TOKEN: &str = "/v1/operator-tokens/current";
    /// `POST`: revoke an operator token.
    pub const OPERATOR_TOKEN_REVOKE: &str = "/v1/operator-tokens/{token}/revoke";
    /// `GET`: the available ways to sign in with a browser, [`super::SignInWays`]. `POST`, authenticated by the token in the body: exchange
    /// it for a cookie, [`super::CreateSignIn`].
    pub const SIGN_INS: &str = "/v1/sign-ins";
    /// `POST`, by the dashboard: the URL where the identity provider signs operators in, [`super::AuthorizationView`].
    pub const SIGN_IN_AUTHORIZATION: &str = "/v1/sign-ins/authorization";
    /// `GET`: the owner of the cookie, [`super::SignInView`]. `DELETE`: sign out.
    pub const SIGN_IN: &str = "/v1/sign-ins/current";
}

/// Body of `POST` [`crate::route::TASKS`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateTask {
    /// The task as it will be stored.
    pub spec: TaskSpec,
}

/// The answer to a dry run of `POST` [`crate::route::TASKS`]: the task could be created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckedTask {
    /// The task as it would be stored.
    pub spec: TaskSpec,
    /// Number of parameters that participants share.
    pub parameters: u64,
    /// Size of one masked input.
    pub update_bytes: u64,
}

/// Bytes of a part of a model file; the last part may be shorter.
pub const MODEL_FILE_PART_BYTES: usize = 8 << 20;

/// Body of `PUT` [`crate::route::MODEL_FILE`]: a safetensors file in parts of 8 MiB, the last of which may be shorter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelFile {
    /// Length of the file, in bytes.
    pub bytes: u64,
    /// SHA-256 of each part, in order.
    pub parts: Vec<Digest>,
}

/// The answer to a [`ModelFile`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelFileReply {
    /// The parts, counted from 0, that are not stored: send them, then the list again. Empty once the file is stored.
    pub missing: Vec<u32>,
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
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
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

task_spec::named_enum! {
    /// What an operator may do; each role may do what those before it may.
    #[derive(PartialOrd, Ord)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum Role {
        /// Ask models that are served (`tributary infer serve`) for predictions, and nothing of a coordinator.
        Predictor = "predictor",
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
    /// Validity of the token, at most 366 days; by default it counts until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_for_ms: Option<u64>,
    /// Ids or names of the 1 to 64 tasks that it is for; by default it is for everything. Not for the role admin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<String>>,
}

/// Answer with the secret, which is shown only this once.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperatorTokenReply {
    pub id: TokenId,
    /// Sent as `Authorization: Bearer …`.
    pub token: String,
    /// From then on it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
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
    /// From then on it is refused; absent if it counts until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// The tasks that it is for; absent if it is for everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<TaskId>>,
}

/// What the bearer of a token may do at present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BearerView {
    /// Name of the owner.
    pub name: String,
    pub role: Role,
    /// From then on it is refused; absent if it counts until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The tasks that it is for; absent if it is for everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<TaskId>>,
}

/// Body of `POST` [`crate::route::SIGN_INS`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateSignIn {
    /// The secret of an operator token.
    pub token: String,
}

/// The ways to sign in with a browser, beside operators' tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SignInWays {
    /// Name of the identity provider that signs operators in; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

/// Where a browser goes to sign in, with a cookie by which it is known again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuthorizationView {
    /// A page of the identity provider.
    pub url: String,
}

/// Whom a cookie stands for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SignInView {
    /// The operator token that it stands for; absent where the identity provider has vouched for somebody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenId>,
    /// Name of the token's owner; of somebody whom the provider knows, what histories have for it.
    pub name: String,
    /// The role at present.
    pub role: Role,
    /// From then on the cookie is refused.
    pub expires_at: Timestamp,
    /// The tasks that it is for; absent if it is for everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<TaskId>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_pinned() {
        assert_eq!(Role::ALL.map(Role::as_str), ["predictor", "viewer", "operator", "admin"]);
        assert_eq!(
            serde_json::to_value(Role::ALL).unwrap(),
            serde_json::json!(["predictor", "viewer", "operator", "admin"])
        );
    }
}
