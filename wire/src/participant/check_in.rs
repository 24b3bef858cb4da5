//! Check-ins: a participant offers to work, and gets an assignment or the time to come back.

use federation::cohort::CoarseLoss;
use federation::id::TaskId;
use serde::{Deserialize, Serialize};
use task_spec::Criterion;

use super::{Assignment, Invitation, RoundKeys};

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
    /// Round-trip time of the connection in milliseconds, coarsely ([`crate::line::told`]); omitted if short. Phases of
    /// its rounds wait that much longer, within a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<u32>,
}

/// Declines an invitation: the participant would send a second input under one round number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Declined {
    pub task: TaskId,
    /// The last round of it that the participant has sent an input for.
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
    /// Tasks have on-device criteria: evaluate them and check in again at once with the findings.
    Asked { questions: Vec<Question> },
    /// Nothing to do: check in again after this time, which is randomized so that participants do not return together.
    ComeBack { after_ms: u64 },
    /// The named task is over; no work will come.
    TaskOver { task: TaskId },
}

/// Reasons a finished update is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum DiscardReason {
    /// More versions were published since its training began than the task allows.
    TooStale,
    /// No round expects it: the coordinator gave no such training, its update is already in a sum, or its task is over.
    Unknown,
}

impl DiscardReason {
    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooStale => "too_stale",
            Self::Unknown => "unknown",
        }
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

/// Reasons a participant gives up its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AbandonReason {
    /// The app's conditions no longer hold (power, network, idleness).
    Conditions,
    /// Training failed or produced an update that must not be sent.
    TrainingFailed,
    /// The assignment requires something that this participant refuses or does not support.
    Refused,
    /// The app is shutting down.
    ShuttingDown,
}

impl AbandonReason {
    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Conditions => "conditions",
            Self::TrainingFailed => "training_failed",
            Self::Refused => "refused",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

/// What a participant refuses. Only this code is reported: the message, which may contain figures of the participant,
/// stays on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum RefusalCode {
    /// The terms are below a minimum that its app has set (`client_sdk::SecurityPolicy`).
    #[error("the task is below what its app demands of secure aggregation")]
    Policy,
    /// The coordinator's announcements violate the protocol.
    #[error("what it was shown of the session of secure aggregation is not as it must be")]
    Protocol,
    /// It has already given an update from this model, or for this round.
    #[error("it has given an update from this model or of this round before, and gives no second one")]
    Given,
    /// It has no keys or no certificate for this session.
    #[error("it has no keys or no certificate for this session")]
    Keys,
    /// Its own privacy limits do not allow it, or the guarantee has changed.
    #[error("its own limits of privacy do not allow it, or the promise is not the one it was given first")]
    Privacy,
    /// The model or the update needs more memory than its app allows.
    #[error("the model or the update is larger than its app allows")]
    TooLarge,
    /// The assignment is inconsistent, or requires something that this SDK does not support.
    #[error("the assignment makes no sense, or asks for what its SDK does not know")]
    Assignment,
    /// The model version could not be fetched completely, or is not a model.
    #[error("the model did not come as its digest says")]
    Model,
    /// Its app's trainer declined.
    #[error("its app declined to train")]
    App,
    /// The coordinator rejected its message.
    #[error("the coordinator did not take what it sent")]
    NotTaken,
}

impl RefusalCode {
    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Protocol => "protocol",
            Self::Given => "given",
            Self::Keys => "keys",
            Self::Privacy => "privacy",
            Self::TooLarge => "too_large",
            Self::Assignment => "assignment",
            Self::Model => "model",
            Self::App => "app",
            Self::NotTaken => "not_taken",
        }
    }
}
