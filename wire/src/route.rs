//! Every path and method, once: the coordinator's router and the SDK's transport both read them here.

use federation::id::{ParticipantId, TaskId};

/// `POST`, no certificate: a one-time token and a signing request for a certificate. [`crate::participant::EnrollRequest`].
pub const ENROLL: &str = "/v1/enroll";
/// `POST`: a new certificate for the same participant. [`crate::participant::RenewRequest`].
pub const RENEW: &str = "/v1/renew";
/// `POST`: long-poll for work. [`crate::participant::CheckInRequest`].
pub const CHECK_IN: &str = "/v1/check-in";
/// `PUT`: a masked input. Answers with a [`crate::participant::Receipt`].
pub const MASKED_INPUT: &str = "/v1/tasks/{task}/rounds/{round}/masked-inputs/{participant}";
/// `POST`: this participant cannot go on. [`crate::participant::AbandonRequest`].
pub const ABANDON: &str = "/v1/tasks/{task}/rounds/{round}/assignments/{participant}/abandon";
/// `GET`, participants and viewers: a model version as safetensors; `ETag`, `Range`.
pub const MODEL_PARAMETERS: &str = "/v1/tasks/{task}/models/{version}/parameters";

/// `GET`: tasks, newest first. `POST`: a new task, [`crate::admin::CreateTask`].
pub const TASKS: &str = "/v1/tasks";
/// `GET`: one task.
pub const TASK: &str = "/v1/tasks/{task}";
/// `POST`: open no further rounds.
pub const TASK_PAUSE: &str = "/v1/tasks/{task}/pause";
/// `POST`: go on.
pub const TASK_RESUME: &str = "/v1/tasks/{task}/resume";
/// `POST`: end the task and its present round.
pub const TASK_CANCEL: &str = "/v1/tasks/{task}/cancel";
/// `GET`: rounds, newest first.
pub const ROUNDS: &str = "/v1/tasks/{task}/rounds";
/// `GET`: one round (its latest attempt, or `?attempt=`); `?after_state=…&wait_ms=…` waits for a change.
pub const ROUND: &str = "/v1/tasks/{task}/rounds/{round}";
/// `GET`: who was drawn and how far each got.
pub const ASSIGNMENTS: &str = "/v1/tasks/{task}/rounds/{round}/assignments";
/// `POST`: do not wait for this participant in this round.
pub const EXCUSE: &str = "/v1/tasks/{task}/rounds/{round}/assignments/{participant}/excuse";
/// `GET`: model versions, newest first.
pub const MODELS: &str = "/v1/tasks/{task}/models";
/// `GET`: one model version.
pub const MODEL: &str = "/v1/tasks/{task}/models/{version}";
/// `GET`: participants.
pub const PARTICIPANTS: &str = "/v1/participants";
/// `GET`: one participant.
pub const PARTICIPANT: &str = "/v1/participants/{participant}";
/// `POST`: refuse its certificate from now on.
pub const PARTICIPANT_REVOKE: &str = "/v1/participants/{participant}/revoke";
/// `POST`: a one-time token for one participant. [`crate::admin::CreateEnrollmentToken`].
pub const ENROLLMENT_TOKENS: &str = "/v1/enrollment-tokens";
/// `GET`, `POST`: operator tokens. [`crate::admin::CreateOperatorToken`].
pub const OPERATOR_TOKENS: &str = "/v1/operator-tokens";
/// `POST`: revoke an operator token.
pub const OPERATOR_TOKEN_REVOKE: &str = "/v1/operator-tokens/{token}/revoke";

/// `GET`: the process is up.
pub const HEALTHZ: &str = "/healthz";
/// `GET`: the process can serve.
pub const READYZ: &str = "/readyz";
/// `GET`: Prometheus.
pub const METRICS: &str = "/metrics";
/// `GET`: this contract as OpenAPI.
pub const OPENAPI: &str = "/openapi.json";

/// Fills in the braces of a template, in order.
///
/// # Panics
/// If there are more braces than values: templates and callers are both in our hands.
#[must_use]
pub fn fill(template: &str, values: &[&dyn std::fmt::Display]) -> String {
    let mut path = String::with_capacity(template.len() + 64);
    let mut values = values.iter();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (_, after) = after.split_once('}').unwrap_or(("", ""));
        path.push_str(before);
        path.push_str(&values.next().expect("a value for every brace of the template").to_string());
        rest = after;
    }
    path.push_str(rest);
    path
}

/// Path of a masked input.
#[must_use]
pub fn masked_input(task: TaskId, round: u32, participant: ParticipantId) -> String {
    fill(MASKED_INPUT, &[&task, &round, &participant])
}

/// Path to give up an assignment.
#[must_use]
pub fn abandon(task: TaskId, round: u32, participant: ParticipantId) -> String {
    fill(ABANDON, &[&task, &round, &participant])
}

/// Path of a model version's parameters.
#[must_use]
pub fn model_parameters(task: TaskId, version: u32) -> String {
    fill(MODEL_PARAMETERS, &[&task, &version])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_filled_in_order() {
        let task = TaskId(uuid::Uuid::from_u128(1));
        let participant = ParticipantId(uuid::Uuid::from_u128(2));
        assert_eq!(
            masked_input(task, 7, participant),
            "/v1/tasks/00000000-0000-0000-0000-000000000001/rounds/7/masked-inputs/00000000-0000-0000-0000-000000000002"
        );
        assert_eq!(fill(HEALTHZ, &[]), "/healthz");
    }
}
