//! Check-ins: a participant offers to work, and receives an assignment or the time of its next check-in.

use federation::cohort::CoarseLoss;
use federation::id::{Digest, TaskId};
use serde::{Deserialize, Serialize};
use task_spec::Criterion;
use uuid::Uuid;

use super::{Assignment, FinalModel, Invitation, RoundKeys, WaitingFor};
use crate::base64::Base64;

/// Body of [`crate::route::CHECK_IN`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckInRequest {
    /// Name of the task that this participant has data for; by default, any task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Number of training examples: reported only with a [`loss`](Self::loss), which it weights, and otherwise 0. Tasks
    /// ask for other information on it with [`CheckInReply::Asked`].
    #[serde(default)]
    pub examples: u64,
    /// Maximum time to wait for an answer; the coordinator may answer earlier.
    #[serde(default)]
    pub wait_ms: u64,
    /// Keys for the round it was invited to; without them it is drawn only into rounds without secure aggregation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<RoundKeys>,
    /// Loss of the last training for a task that asked for it
    /// ([`Assignment::report_loss`](super::Assignment::report_loss)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossReport>,
    /// Answers to tasks that asked ([`CheckInReply::Asked`]); at most [`MAX_FINDINGS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Result of the training that it was given ahead of rounds ([`CheckInReply::Train`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingReport>,
    /// The last round whose invitation it declines, since it has sent an input for that number or a later one: the
    /// coordinator has lost rounds, or lies. Repeated until a later round invites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declined: Option<Declined>,
    /// Where this participant stands with its fixed batch; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchReport>,
    /// Round-trip time of the connection in milliseconds, coarsely ([`crate::round_trip::reported`]); omitted if short. Phases of
    /// its rounds wait that much longer, within a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<u32>,
    /// Tasks whose terms the participant refuses at present; at most [`MAX_FINDINGS`]. Their rounds neither invite nor draw it, and their
    /// operators see how many refuse, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<TaskRefusal>,
}

/// A task that a participant refuses, as it would refuse an assignment ([`AbandonRequest`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskRefusal {
    pub task: TaskId,
    pub reason: RefusalCode,
}

/// Where a participant stands with its fixed batch (`secure_agg::batch`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum BatchReport {
    /// It belongs to a batch, which it states with its keys.
    Member {
        /// Number of members.
        size: u16,
        /// The batch's id.
        batch: Digest,
    },
    /// It offers to be drawn into a batch.
    Offer {
        draw: Uuid,
        /// `secure_agg::batch::draw::Offer`.
        offer: Base64,
    },
    /// It reveals the nonce of its offer.
    Reveal {
        draw: Uuid,
        /// `secure_agg::batch::draw::Reveal`.
        reveal: Base64,
    },
}

/// A step of the draw that forms fixed batches, for a participant of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum BatchStep {
    /// The task needs participants in batches: check in again with an offer for this draw.
    Offer {
        /// The task whose participants are drawn; a participant that refuses the draw reports it as refused.
        task: TaskId,
        draw: Uuid,
        /// Number of members of each batch.
        size: u16,
    },
    /// The participants of the draw are fixed: check in again with the nonce.
    Reveal {
        task: TaskId,
        draw: Uuid,
        /// `secure_agg::batch::draw::Pool`.
        pool: Base64,
    },
    /// Everybody has revealed: compute the batch, and check in again as its member.
    Drawn {
        draw: Uuid,
        /// `secure_agg::batch::draw::Drawn`.
        drawn: Base64,
    },
}

/// Declines an invitation: the participant would send a second input under one round number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Declined {
    pub task: TaskId,
    /// The last round of it that the participant has sent an input for, or was drawn for.
    pub sent: u32,
}

/// What became of a training. From which version it started is the coordinator's to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TrainingReport {
    pub task: TaskId,
    /// Serial number of the training: [`Assignment::attempt`](super::Assignment::attempt) of its assignment.
    pub serial: u32,
    /// True if the participant holds the finished update, ready to aggregate; false if it has none and will have none.
    pub ready: bool,
}

/// Maximum number of tasks for which a participant reports findings; they may repeat at every check-in.
pub const MAX_FINDINGS: usize = 32;

/// Whether the participant meets a task's on-device criteria, without a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Finding {
    pub task: TaskId,
    /// Whether all criteria hold.
    pub eligible: bool,
}

/// A task's on-device criteria, which never change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Question {
    pub task: TaskId,
    /// Criteria that must all hold.
    pub criteria: Vec<Criterion>,
}

/// A quantized training loss: five bits that a participant volunteers for selection by loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LossReport {
    /// The task that it was trained for.
    pub task: TaskId,
    pub level: CoarseLoss,
}

/// Answer to a check-in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum CheckInReply {
    /// An assignment. It is repeated until the participant reports, gives up, or the round is over.
    Assigned(Box<Assignment>),
    /// Train now, ahead of any round, and check in again with the finished update. `round` is the next round that may
    /// use it, `attempt` the serial number of the training, `cohort` the size with which a round opens; nothing is
    /// uploaded yet.
    Train(Box<Assignment>),
    /// The participant's finished update is no longer useful: discard it and check in again.
    Discard {
        task: TaskId,
        /// Serial number of the training.
        serial: u32,
        reason: DiscardReason,
    },
    /// A round with secure aggregation is about to draw its cohort: check in again at once with keys for it.
    Invited(Box<Invitation>),
    /// A task needs participants in fixed batches: take this step, and check in again at once.
    Batch(Box<BatchStep>),
    /// Tasks have on-device criteria: evaluate them and check in again at once with the findings.
    Asked { questions: Vec<Question> },
    /// Nothing to do: check in again after this time, which is randomized so that participants do not return together.
    ComeBack {
        after_ms: u64,
        /// What it waits for, at most [`MAX_WAITING_FOR`](super::MAX_WAITING_FOR) reasons; none if the coordinator is about to stop.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        waiting_for: Vec<WaitingFor>,
    },
    /// The named task is over; no work will come.
    TaskOver {
        task: TaskId,
        /// Its last version; none for an analysis, for a participant whose labels the task does not take, and of a version whose file is
        /// kept no more. Absent from older coordinators.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<Box<FinalModel>>,
    },
}

task_spec::named_enum! {
    /// Why a finished update is thrown away.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum DiscardReason {
        /// More versions were published since its training began than the task allows.
        TooStale = "too_stale",
        /// No round expects it: the coordinator gave no such training, its update is in a sum already, or its task is over.
        Unknown = "unknown",
    }
}

/// Body of [`crate::route::ABANDON`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AbandonRequest {
    /// The attempt to give up.
    pub attempt: u32,
    pub reason: AbandonReason,
    /// With [`AbandonReason::Refused`]: what was refused. Absent from older SDKs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<RefusalCode>,
}

task_spec::named_enum! {
    /// Why a participant gives up its place.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum AbandonReason {
        /// The app's conditions do not hold any more (power, network, idleness).
        Conditions = "conditions",
        /// Training failed or gave an update that must not be sent.
        TrainingFailed = "training_failed",
        /// The assignment asks for something this participant refuses or does not know.
        Refused = "refused",
        /// The app is going away.
        ShuttingDown = "shutting_down",
    }
}

task_spec::named_enum! {
    /// What a participant refuses. The coordinator is told this code and nothing else: the words, which may hold figures of the
    /// participant's own, stay on the device.
    #[derive(thiserror::Error)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum RefusalCode {
        /// The terms are below a floor that its app has set (`client_sdk::SecurityPolicy`).
        #[error("the task is below what its app demands of secure aggregation")]
        Policy = "policy",
        /// What the coordinator showed of the session is not as the protocol has it.
        #[error("what it was shown of the session of secure aggregation is not as it must be")]
        Protocol = "protocol",
        /// It has sent an update of this round, of a later one, or of one from which this round is not far enough.
        #[error("it has sent an update of this round, of a later one or of too close a one, and sends no second one here")]
        Given = "given",
        /// It has no keys, or no certificate, with which it could take part in this session.
        #[error("it has no keys or no certificate for this session")]
        Keys = "keys",
        /// Its own limits of privacy, or a promise that was changed.
        #[error("its own limits of privacy do not allow it, or the promise is not the one it was given first")]
        Privacy = "privacy",
        /// The model or the update takes more memory than its app allows.
        #[error("the model or the update is larger than its app allows")]
        TooLarge = "too_large",
        /// The assignment contradicts itself, or asks for what this SDK does not know.
        #[error("the assignment makes no sense, or asks for what its SDK does not know")]
        Assignment = "assignment",
        /// The model version could not be fetched whole, or is none.
        #[error("the model did not come as its digest says")]
        Model = "model",
        /// What proves where the model comes from is missing, wrong, or contradicts what it was shown before.
        #[error("it was not shown where the model comes from, or not as it must be")]
        Provenance = "provenance",
        /// Its app's trainer declined.
        #[error("its app declined to train")]
        App = "app",
        /// The coordinator would not take what it sent.
        #[error("the coordinator did not take what it sent")]
        NotTaken = "not_taken",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_pinned() {
        fn pinned<T: Copy + Serialize, const N: usize>(all: [T; N], as_str: fn(T) -> &'static str, names: [&str; N]) {
            assert_eq!(all.map(as_str), names);
            assert_eq!(serde_json::to_value(all.to_vec()).unwrap(), serde_json::json!(names.to_vec()));
        }
        pinned(DiscardReason::ALL, DiscardReason::as_str, ["too_stale", "unknown"]);
        let abandon = ["conditions", "training_failed", "refused", "shutting_down"];
        pinned(AbandonReason::ALL, AbandonReason::as_str, abandon);
        let refusals = [
            "policy",
            "protocol",
            "given",
            "keys",
            "privacy",
            "too_large",
            "assignment",
            "model",
            "provenance",
            "app",
            "not_taken",
        ];
        pinned(RefusalCode::ALL, RefusalCode::as_str, refusals);
    }
}
