//! Every path and method, once: the coordinator's router and the SDK's transport both read them here.

use federation::id::{Attempt, ParticipantId, TaskId};

use crate::participant::{Announcement, Answer};

/// `POST`, no certificate: a one-time token and a signing request for a certificate. [`crate::participant::EnrollRequest`].
pub const ENROLL: &str = "/v1/enroll";
/// `POST`: a new certificate for the same participant. [`crate::participant::RenewRequest`].
pub const RENEW: &str = "/v1/renew";
/// `POST`: long-poll for work. [`crate::participant::CheckInRequest`].
pub const CHECK_IN: &str = "/v1/check-in";
/// `PUT`: a masked input. Answers with a [`crate::participant::Receipt`].
pub const MASKED_INPUT: &str = "/v1/tasks/{task}/rounds/{round}/masked-inputs/{participant}";
/// `GET`, the cohort's: who takes part in a session; `?attempt=`. Immutable.
pub const ROSTER: &str = "/v1/tasks/{task}/rounds/{round}/roster";
/// `PUT`: what a participant deals to the others. `GET`, the cohort's: the same, as the dealer signed it; `?attempt=`.
pub const KEY_SHARES: &str = "/v1/tasks/{task}/rounds/{round}/key-shares/{participant}";
/// `GET`: what the others dealt to a participant; `?attempt=&wait_ms=`, 204 if it is not time yet.
pub const DELIVERY: &str = "/v1/tasks/{task}/rounds/{round}/deliveries/{participant}";
/// `PUT`: that a dealer's shares do not open.
pub const COMPLAINT: &str = "/v1/tasks/{task}/rounds/{round}/complaints/{participant}";
/// `GET`, the cohort's: whose inputs are included; `?attempt=&wait_ms=`, 204 if it is not time yet.
pub const SURVIVORS: &str = "/v1/tasks/{task}/rounds/{round}/survivors";
/// `PUT`: a participant's signature on the included set.
pub const CONSISTENCY: &str = "/v1/tasks/{task}/rounds/{round}/consistency/{participant}";
/// `GET`, the cohort's: everybody's signatures on the included set; `?attempt=&wait_ms=`, 204 if it is not time yet.
pub const AGREEMENT: &str = "/v1/tasks/{task}/rounds/{round}/agreement";
/// `PUT`: a participant's answer, which opens the sum together with those of others.
pub const UNMASK_SHARES: &str = "/v1/tasks/{task}/rounds/{round}/unmask-shares/{participant}";
/// `PUT`: that a participant has left a session for good and never answered in it; counts after the round, too.
pub const ABORT_STATEMENT: &str = "/v1/tasks/{task}/rounds/{round}/abort-statements/{participant}";
/// `GET`, the cohort's: enough of these, with the roster, that a session was never opened; `?attempt=`, 204 as long as they are not.
pub const ABORT_STATEMENTS: &str = "/v1/tasks/{task}/rounds/{round}/abort-statements";
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
/// `POST`: no round number up to one that participants have seen is used again.
pub const TASK_REBASE: &str = "/v1/tasks/{task}/rebase";
/// `GET`: rounds, newest first.
pub const ROUNDS: &str = "/v1/tasks/{task}/rounds";
/// `GET`: one round (its latest attempt, or `?attempt=`); `?after_state=…&wait_ms=…` waits for a change.
pub const ROUND: &str = "/v1/tasks/{task}/rounds/{round}";
/// `GET`: who was drawn and how far each got.
pub const ASSIGNMENTS: &str = "/v1/tasks/{task}/rounds/{round}/assignments";
/// `POST`: do not wait for this participant in this round.
pub const EXCUSE: &str = "/v1/tasks/{task}/rounds/{round}/assignments/{participant}/excuse";
/// `GET`: what the task has told about its participants at most: the ledger.
pub const TASK_PRIVACY: &str = "/v1/tasks/{task}/privacy";
/// `GET`: what all private tasks together have told about a participant of each at most.
pub const PRIVACY: &str = "/v1/privacy";
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

/// Path, with its query, of what the coordinator announces in a session.
#[must_use]
pub fn announcement(
    what: Announcement,
    Attempt { task, round, attempt }: Attempt,
    participant: ParticipantId,
    wait_ms: u64,
) -> String {
    let path = match what {
        Announcement::Roster => fill(ROSTER, &[&task, &round]),
        Announcement::Delivery => fill(DELIVERY, &[&task, &round, &participant]),
        Announcement::Survivors => fill(SURVIVORS, &[&task, &round]),
        Announcement::Agreement => fill(AGREEMENT, &[&task, &round]),
    };
    format!("{path}?attempt={attempt}&wait_ms={wait_ms}")
}

/// Path of what a participant says in a session; the attempt goes into [`crate::headers::ATTEMPT`].
#[must_use]
pub fn answer(what: Answer, task: TaskId, round: u32, participant: ParticipantId) -> String {
    let template = match what {
        Answer::KeyShares => KEY_SHARES,
        Answer::Complaint => COMPLAINT,
        Answer::Consistency => CONSISTENCY,
        Answer::UnmaskShares => UNMASK_SHARES,
    };
    fill(template, &[&task, &round, &participant])
}

/// Path, with its query, of what a dealer dealt, as it signed it.
#[must_use]
pub fn evidence(Attempt { task, round, attempt }: Attempt, dealer: ParticipantId) -> String {
    format!("{}?attempt={attempt}", fill(KEY_SHARES, &[&task, &round, &dealer]))
}

/// Path of what a participant says when it has left a session for good; the attempt goes into [`crate::headers::ATTEMPT`].
#[must_use]
pub fn abort_statement(task: TaskId, round: u32, participant: ParticipantId) -> String {
    fill(ABORT_STATEMENT, &[&task, &round, &participant])
}

/// Path, with its query, of what everybody in a session said who has left it.
#[must_use]
pub fn abort_statements(Attempt { task, round, attempt }: Attempt) -> String {
    format!("{}?attempt={attempt}", fill(ABORT_STATEMENTS, &[&task, &round]))
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
