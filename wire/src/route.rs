//! All paths and methods, used by the coordinator's router and the SDK's transport. The operators' paths are next to their bodies, in
//! [`crate::admin`] and [`crate::inspect`].

use federation::id::{Attempt, ParticipantId, TaskId};

pub use crate::admin::route::*;
pub use crate::inspect::route::*;
use crate::participant::{Announcement, Answer};

/// `POST`, no certificate: a one-time token and a signing request for a certificate. [`crate::participant::EnrollRequest`].
pub const ENROLL: &str = "/v1/enroll";
/// `POST`: a new certificate for the same participant. [`crate::participant::RenewRequest`].
pub const RENEW: &str = "/v1/renew";
/// `POST`: revokes the participant at its own request. The reply is [`crate::contributions::SignedContributions`]; repeated, a new one.
pub const WITHDRAW: &str = "/v1/withdraw";
/// `POST`: long-poll for work. [`crate::participant::CheckInRequest`].
pub const CHECK_IN: &str = "/v1/check-in";
/// `PUT`: a masked input. The answer is a [`crate::participant::Receipt`].
pub const MASKED_INPUT: &str = "/v1/tasks/{task}/rounds/{round}/masked-inputs/{participant}";
/// `PUT`: the manifest of a masked input of more than 8 MiB; [`crate::participant::UploadManifest`]. The reply,
/// [`crate::participant::UploadReply`], lists the missing parts, or confirms that the input is included.
pub const UPLOAD_MANIFEST: &str = "/v1/tasks/{task}/rounds/{round}/masked-inputs/{participant}/manifest";
/// `PUT`: a part of a masked input, numbered from 0, of an earlier manifest. 204.
pub const UPLOAD_PART: &str = "/v1/tasks/{task}/rounds/{round}/masked-inputs/{participant}/parts/{part}";
/// `GET`, by the cohort: the participants of a session; `?attempt=`. Immutable.
pub const ROSTER: &str = "/v1/tasks/{task}/rounds/{round}/roster";
/// `PUT`: a participant's shares for the others. `GET`, by the cohort: the same, as signed by the dealer; `?attempt=`.
pub const KEY_SHARES: &str = "/v1/tasks/{task}/rounds/{round}/key-shares/{participant}";
/// `GET`: the shares dealt to a participant; `?attempt=&wait_ms=`, 204 if not available yet.
pub const DELIVERY: &str = "/v1/tasks/{task}/rounds/{round}/deliveries/{participant}";
/// `PUT`: a complaint that a dealer's shares do not open.
pub const COMPLAINT: &str = "/v1/tasks/{task}/rounds/{round}/complaints/{participant}";
/// `GET`, by the cohort: the included inputs; `?attempt=&wait_ms=`, 204 if not available yet.
pub const SURVIVORS: &str = "/v1/tasks/{task}/rounds/{round}/survivors";
/// `PUT`: a participant's signature on the set of included inputs.
pub const CONSISTENCY: &str = "/v1/tasks/{task}/rounds/{round}/consistency/{participant}";
/// `GET`, by the cohort: all signatures on the set of included inputs; `?attempt=&wait_ms=`, 204 if not available yet.
pub const AGREEMENT: &str = "/v1/tasks/{task}/rounds/{round}/agreement";
/// `PUT`: a participant's shares for unmasking the sum.
pub const UNMASK_SHARES: &str = "/v1/tasks/{task}/rounds/{round}/unmask-shares/{participant}";
/// `POST`: this participant gives up its place. [`crate::participant::AbandonRequest`].
pub const ABANDON: &str = "/v1/tasks/{task}/rounds/{round}/assignments/{participant}/abandon";
/// `GET`, by participants and viewers: a model version as safetensors; `ETag`, `Range`.
pub const MODEL_PARAMETERS: &str = "/v1/tasks/{task}/models/{version}/parameters";

/// `GET`: liveness.
pub const HEALTHZ: &str = "/healthz";
/// `GET`: readiness.
pub const READYZ: &str = "/readyz";
/// `GET`: metrics for Prometheus.
pub const METRICS: &str = "/metrics";
/// `GET`: this contract as OpenAPI.
pub const OPENAPI: &str = "/openapi.json";

/// Fills in the placeholders of a template, in order.
///
/// # Panics
/// If there are more placeholders than values; all templates and callers are our own.
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

/// Path of the manifest of a masked input.
#[must_use]
pub fn upload_manifest(task: TaskId, round: u32, participant: ParticipantId) -> String {
    fill(UPLOAD_MANIFEST, &[&task, &round, &participant])
}

/// Path of a part of a masked input.
#[must_use]
pub fn upload_part(task: TaskId, round: u32, participant: ParticipantId, part: u32) -> String {
    fill(UPLOAD_PART, &[&task, &round, &participant, &part])
}

/// Path and query of an announcement of the coordinator in a session.
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

/// Path of a participant's message in a session; the attempt goes into [`crate::headers::ATTEMPT`].
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

/// Path and query of a dealer's signed shares.
#[must_use]
pub fn evidence(Attempt { task, round, attempt }: Attempt, dealer: ParticipantId) -> String {
    format!("{}?attempt={attempt}", fill(KEY_SHARES, &[&task, &round, &dealer]))
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
