//! Read-only views for operators. All fields are safe for the viewer role: they exclude updates, keys and secrets.

mod comparison;
mod compression;
mod device;
pub mod figures;
mod privacy;
mod protection;
mod region;
mod serving;
mod task_participants;
mod task_waiting_for;

use std::collections::BTreeMap;

use federation::device_reason::DeviceReason;
use federation::id::{Digest, ParticipantId, TaskId};
use federation::round::{AssignmentState, FailureReason, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};
use task_spec::{Mode, TaskSpec};

pub use comparison::{Column, ComparedLine, Comparison, RoundTotals};
pub use compression::CompressionView;
pub use device::{DeviceSum, DeviceView};
pub use privacy::{EpsilonView, PrivacyReport, PrivacyTotal, ReleaseView, TaskPrivacy};
pub use protection::{AcrossRounds, CertifiedBy, Protection};
pub use region::RegionFigures;
pub use serving::{
    CanaryView, REFUSED_MAX, RefusedBecause, RefusedVersion, ServerReport, ServerView, is_in_server_name,
    is_server_name,
};
pub use task_participants::{RefusalCount, TaskParticipantsView};
pub use task_waiting_for::TaskWaitingFor;

/// Paths of the operator routes that only read.
pub mod route {
    /// `GET`: tasks, newest first. `POST`: a new task, [`crate::admin::CreateTask`].
    pub const TASKS: &str = "/v1/tasks";
    /// `GET`: one task.
    pub const TASK: &str = "/v1/tasks/{task}";
    /// `GET`: rounds, newest first.
    pub const ROUNDS: &str = "/v1/tasks/{task}/rounds";
    /// `GET`: one round (its latest attempt, or `?attempt=`); `?after_state=…&wait_ms=…` waits for a change.
    pub const ROUND: &str = "/v1/tasks/{task}/rounds/{round}";
    /// `GET`: the cohort of a round and the state of each participant.
    pub const ASSIGNMENTS: &str = "/v1/tasks/{task}/rounds/{round}/assignments";
    /// `GET`: the task's privacy ledger: an upper bound on the revealed information.
    pub const TASK_PRIVACY: &str = "/v1/tasks/{task}/privacy";
    /// `GET`: the whole ledger with a signature, [`crate::ledger::SignedLedger`].
    pub const TASK_PRIVACY_EXPORT: &str = "/v1/tasks/{task}/privacy/export";
    /// `GET`: an upper bound on the information that all private tasks together revealed about a participant of each.
    pub const PRIVACY: &str = "/v1/privacy";
    /// `GET`: model versions, newest first.
    pub const MODELS: &str = "/v1/tasks/{task}/models";
    /// `GET`: one model version.
    pub const MODEL: &str = "/v1/tasks/{task}/models/{version}";
    /// `GET`: provenance of a model version, [`crate::provenance::SignedProvenance`].
    pub const MODEL_PROVENANCE: &str = "/v1/tasks/{task}/models/{version}/provenance";
    /// `GET`: inference servers of the task's model, [`super::ServerView`], by name.
    pub const TASK_SERVERS: &str = "/v1/tasks/{task}/servers";
    /// `GET`: tasks or rounds side by side, [`super::Comparison`]; `?task=` or `?round=`, 2 to 8 times.
    pub const COMPARE: &str = "/v1/compare";
    /// `GET`: the built-in starter tasks, [`super::PresetView`].
    pub const PRESETS: &str = "/v1/presets";
    /// `GET`: accelerators used for sums, [`super::DeviceView`], by name; `?task=` restricts them to one task.
    pub const DEVICES: &str = "/v1/devices";
    /// `GET`: participants.
    pub const PARTICIPANTS: &str = "/v1/participants";
    /// `GET`: one participant.
    pub const PARTICIPANT: &str = "/v1/participants/{participant}";
    /// `GET`: the sums that contain updates of one participant, [`crate::contributions::SignedContributions`].
    pub const PARTICIPANT_CONTRIBUTIONS: &str = "/v1/participants/{participant}/contributions";
    /// `GET`: events as they happen (`text/event-stream`), [`crate::audit::EventView`] each.
    pub const EVENTS: &str = "/v1/events";
    /// `GET`: the same for one task.
    pub const TASK_EVENTS: &str = "/v1/tasks/{task}/events";
    /// `GET`: the audit log, oldest first.
    pub const AUDIT: &str = "/v1/audit";
    /// `GET`: the whole audit log with its signed head, one [`crate::audit::Line`] per line.
    pub const AUDIT_EXPORT: &str = "/v1/audit/export";
    /// `GET`: [`crate::audit::AuditKeyView`].
    pub const AUDIT_KEY: &str = "/v1/audit/key";
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// At most `limit` items.
    pub items: Vec<T>,
    /// `cursor` of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A status and its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatusChange {
    /// Stable name of the status.
    pub status: String,
    pub at: Timestamp,
    /// Further details, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A task in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskSummary {
    pub id: TaskId,
    pub name: String,
    pub status: TaskStatus,
    /// Number of completed rounds.
    pub rounds_completed: u32,
    /// Number of rounds to run.
    pub rounds_total: u32,
    pub model_version: u32,
    /// Number of model parameters.
    pub parameters: u64,
    pub created_at: Timestamp,
}

/// Participants that have sent inputs for rounds unknown to this coordinator: an older database was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BehindView {
    /// Number of participants that report so.
    pub participants: u32,
    /// The coordinator's next round, in which they do not take part.
    pub next_round: u32,
    /// The last round for which enough of them have sent an input; a rebase continues after it.
    pub seen_round: u32,
}

/// Participants that the task's next round lacks. No attempt opens until enough are enrolled, unless the task is to
/// pause after a number of failed attempts (`rounds.max_attempts`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShortageView {
    /// Participants required before a cohort is drawn.
    pub needed: u32,
    /// Enrolled participants that are eligible: not revoked, with the labels that the task requires, and below its
    /// limit of participations.
    pub enrolled: u32,
    /// Number of them that are checked in.
    pub waiting: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskView {
    /// What the list shows.
    #[serde(flatten)]
    pub summary: TaskSummary,
    /// Round numbers that no completed round has and none will have: spent by failed attempts, or skipped by a rebase. Its rounds go up to
    /// this number and [`TaskSummary::rounds_total`] together, or further if more are lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rounds_forfeited: u32,
    /// As the operator wrote it.
    pub spec: TaskSpec,
    /// Who can read its updates; absent from older coordinators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protection: Option<Protection>,
    /// All statuses so far.
    pub history: Vec<StatusChange>,
    /// The version that an operator has chosen to be used; absent if none was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promoted_version: Option<u32>,
    /// Participants that have seen more of the task than this coordinator; absent if none report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<BehindView>,
    /// What the next round waits for, or waited for in vain; absent if there are enough participants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<ShortageView>,
    /// The participants that it could have; absent once it is over, and from older coordinators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participants: Option<TaskParticipantsView>,
    /// What it waits for now, and until when; absent from older coordinators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<TaskWaitingFor>,
}

/// A built-in task to begin with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PresetView {
    pub name: String,
    /// What it is for, in a few words.
    pub description: String,
    /// Keys of a task that it sets; it has no name, no model and no cohort.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub spec: serde_json::Value,
}

/// One phase of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PhaseView {
    pub state: RoundState,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Deadline; absent once over.
    pub deadline_at: Option<Timestamp>,
    /// Required number of participants.
    pub min: Option<u32>,
    /// Number of participants at which it closes early.
    pub max: Option<u32>,
    /// Number of participants at its end, or so far.
    pub count: Option<u32>,
    /// Size of the messages accepted in it, in bytes.
    #[serde(default)]
    pub bytes_up: u64,
    /// Size of the messages sent to the cohort in it, in bytes.
    #[serde(default)]
    pub bytes_down: u64,
}

/// The secure aggregation session of a round. Contains only the sizes of U1 to U5; [`AssignmentView::sets`] has the
/// members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionView {
    /// t: the required number of dealers, signatures and answers.
    pub threshold: u32,
    /// k_m: mask neighbours that each participant draws.
    pub out_degree: u32,
    /// t_m: drawn neighbours that must remain.
    pub min_out: u32,
    /// γn: participants that may collude with the coordinator.
    pub tolerated_corrupt: u32,
    /// U1: participants in the roster.
    pub advertised: u32,
    /// U2: participants that dealt shares.
    pub shared: u32,
    /// U3: participants whose inputs are in the sum.
    pub included: u32,
    /// U4: participants that signed U3.
    pub signed: u32,
    /// U5: participants that answered, which opened the sum.
    pub unmasked: u32,
}

/// How the sum was computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SumWorkView {
    /// The coordinator that released it and whose devices these are, by its name (`work.name`); absent for sums of older coordinators.
    /// Inputs that were folded before may have been added by others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<String>,
    /// Device that added the inputs, or compared them for a robust rule in the clear.
    pub sum_device: String,
    /// Why that one; absent for sums of older coordinators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum_because: Option<DeviceReason>,
    /// Device that removed the masks; the processor, where there are none.
    pub unmask_device: String,
    /// Why that one; absent for sums of older coordinators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmask_because: Option<DeviceReason>,
    /// The device that failed at it, and how; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_failure: Option<String>,
    /// Seconds of adding, in the last step, or of comparing.
    pub sum_seconds: f64,
    /// Seconds of removing masks.
    pub unmask_seconds: f64,
    /// Keystream generated for it, in bytes.
    pub keystream_bytes: u64,
}

/// A weighted mean over the cohort.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MetricView {
    pub value: f64,
    /// Number of examples it was measured on.
    pub count: u64,
}

/// A reference to a model version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelVersionRef {
    pub version: u32,
    /// Of its safetensors file.
    pub sha256: Digest,
}

/// The updates of a round that were trained ahead of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BufferView {
    pub mode: Mode,
    /// Number of updates drawn.
    pub updates: u32,
    /// The oldest version that an update started from.
    pub oldest_version: u32,
    /// The newest version that an update started from.
    pub newest_version: u32,
    /// Mean staleness, in versions behind the round's base.
    pub mean_staleness: f64,
    pub max_staleness: u32,
    /// Mean weight; 1 if no update is stale.
    pub mean_weight: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// One attempt at a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RoundView {
    pub task: TaskId,
    /// Counts from 1.
    pub number: u32,
    /// Counts from 1.
    pub attempt: u32,
    pub state: RoundState,
    pub failure: Option<FailureReason>,
    /// Whether it failed after masked inputs may have been sent: its number is not retried, and the next round trains
    /// anew.
    #[serde(default)]
    pub spent: bool,
    /// Its phases so far, in order.
    pub phases: Vec<PhaseView>,
    /// Number of participants drawn.
    pub cohort: u32,
    /// Number of masked inputs accepted.
    pub reported: u32,
    pub dropped: u32,
    /// Dropouts by state.
    pub dropped_why: BTreeMap<AssignmentState, u32>,
    /// Dropouts by phase. Includes participants that dropped out after their input was accepted, which are in the sum.
    #[serde(default)]
    pub dropped_in: BTreeMap<RoundState, u32>,
    /// The secure aggregation session, if the task has one and the cohort was drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure_aggregation: Option<SessionView>,
    /// The groups of the cohort, in order, if it was divided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupView>,
    /// How the sum was computed, once it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<SumWorkView>,
    /// Size of accepted masked inputs, in bytes.
    pub bytes_up: u64,
    /// Size of the base model as sent to the cohort, in bytes.
    pub bytes_down: u64,
    /// Weighted means over the cohort, of the base model and of the training.
    pub metrics: BTreeMap<String, MetricView>,
    /// Distributions of metrics over the cohort, if the task declares them or has personalization.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub distributions: BTreeMap<String, DistributionView>,
    /// Savings and cost of the task's codec, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionView>,
    /// The aggregated updates, if they were trained ahead of the round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<BufferView>,
    /// Privacy budget spent up to and including this release; absent without a mechanism and before the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<EpsilonView>,
    /// The version that the cohort started from.
    pub base: ModelVersionRef,
    /// 90th percentile of the cohort's round-trip times, in milliseconds, if it extended the deadlines of phases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<u32>,
    /// The version published by the round.
    pub model: Option<ModelVersionRef>,
    /// If the round's base failed the task's gate: the earlier version that the round published again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_to: Option<u32>,
    pub opened_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// From opening to end, or until now.
    pub seconds: f64,
}

/// One group of a divided cohort.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupView {
    /// Counts from 0.
    pub group: u32,
    /// Number of participants drawn into it.
    pub members: u32,
    /// Number of them whose masked inputs were accepted.
    pub reported: u32,
    /// Anomaly score of its mean by a robust rule: about 1 is normal, several times that is suspicious. Absent before
    /// the sums are opened, and for a group that was excluded because too few members remained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<f64>,
}

/// Quantiles of a metric over participants, read from a histogram of the cohort that is part of the sum: under secure
/// aggregation nobody sees a single value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DistributionView {
    /// Number of participants that measured it.
    pub participants: u64,
    pub p10: f64,
    pub p25: f64,
    pub p50: f64,
    pub p75: f64,
    pub p90: f64,
    /// Width of the histogram's bins, an upper bound on the error of quantiles.
    pub resolution: f64,
}

/// One participant's place in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AssignmentView {
    pub participant: ParticipantId,
    pub name: String,
    pub state: AssignmentState,
    /// The participant's reason or code, if it gave up.
    pub detail: Option<String>,
    /// The phase in which it stopped answering or its group was excluded, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_in: Option<RoundState>,
    /// The group it was drawn into, from 0, if the cohort was divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// Its sets in secure aggregation: `U1` advertised, `U2` shared, `U3` included, `U4` signed, `U5` unmasked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
    /// Size of its masked input, in bytes.
    pub bytes_up: Option<u64>,
    /// Anomaly score of its update, or of its group's mean, by a robust rule: about 1 is normal, several times that is
    /// suspicious.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<f64>,
    /// All states so far.
    pub history: Vec<StatusChange>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelView {
    pub task: TaskId,
    /// Counts from 0.
    pub version: u32,
    /// Of the safetensors file.
    pub sha256: Digest,
    /// Size of the safetensors file, in bytes.
    pub bytes: u64,
    /// The round that published it, or after which an operator restored it; absent for version 0.
    pub round: Option<u32>,
    /// The version it was trained from, or is again.
    pub parent: Option<u32>,
    pub created_at: Timestamp,
    /// Since when an operator keeps it, whatever the task retains; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_at: Option<Timestamp>,
    /// Since when its file is kept no more, so that it cannot be downloaded; absent while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_at: Option<Timestamp>,
}

task_spec::named_enum! {
    /// Whether a participant may take part.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum ParticipantState {
        /// It is enrolled.
        Active = "active",
        /// An operator revoked it.
        Revoked = "revoked",
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ParticipantView {
    pub id: ParticipantId,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub enrolled_at: Timestamp,
    pub certificate_expires_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
    /// Last check-in, accurate to within a check-in's lifetime.
    pub last_seen_at: Option<Timestamp>,
    /// Number of rounds it was drawn into, over all tasks.
    pub participations: u32,
}
