//! What operators see. Everything here is safe to show a viewer: no update, no key, no secret.

mod compression;
mod privacy;

use std::collections::BTreeMap;

use federation::id::{Digest, ParticipantId, TaskId};
use federation::round::{AssignmentState, FailureReason, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};
use task_spec::{Mode, TaskSpec};

pub use compression::CompressionView;
pub use privacy::{EpsilonView, PrivacyReport, PrivacyTotal, ReleaseView, TaskPrivacy};

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// At most `limit` of them.
    pub items: Vec<T>,
    /// Send it as `cursor` for the next page; none on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A status and when it began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatusChange {
    /// The status's stable name.
    pub status: String,
    /// When it began.
    pub at: Timestamp,
    /// Why, if there is more to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A task in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskSummary {
    /// Its id.
    pub id: TaskId,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub status: TaskStatus,
    /// Rounds completed.
    pub rounds_completed: u32,
    /// Rounds it is to run.
    pub rounds_total: u32,
    /// Newest model version.
    pub model_version: u32,
    /// Parameters of the model.
    pub parameters: u64,
    /// When it was created.
    pub created_at: Timestamp,
}

/// Participants that have sent inputs for rounds which the coordinator has not had: an older database was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BehindView {
    /// How many say so.
    pub participants: u32,
    /// The round whose turn it is here, which they take no part in.
    pub next_round: u32,
    /// The last round that enough of them have sent an input for; the task goes on beyond it when it is rebased.
    pub seen_round: u32,
}

/// Participants that a task's next round needs and does not have. Until so many are enrolled no further attempt
/// opens, unless the task is to pause after so many of them (`rounds.max_attempts`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShortageView {
    /// How many must be there before a cohort is drawn.
    pub needed: u32,
    /// How many are enrolled that may take part: not revoked, with the labels that the task asks for, and not in as many rounds
    /// already as it allows.
    pub enrolled: u32,
    /// How many of them are checked in.
    pub waiting: u32,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskView {
    /// What the list shows.
    #[serde(flatten)]
    pub summary: TaskSummary,
    /// As the operator wrote it.
    pub spec: TaskSpec,
    /// Who can read an update: `nobody`, or `operator` without secure aggregation.
    pub updates_readable_by: String,
    /// Every status it had.
    pub history: Vec<StatusChange>,
    /// Who has seen more of the task than this coordinator; none where nobody says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<BehindView>,
    /// What its next round waits for, or waited for in vain; none where enough participants are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<ShortageView>,
}

/// One phase of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PhaseView {
    /// The phase.
    pub state: RoundState,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When it must have ended; none once over.
    pub deadline_at: Option<Timestamp>,
    /// How many it needed.
    pub min: Option<u32>,
    /// With how many it closes early.
    pub max: Option<u32>,
    /// How many it had when it ended, or has now.
    pub count: Option<u32>,
    /// Bytes of the messages that were accepted in it.
    #[serde(default)]
    pub bytes_up: u64,
    /// Bytes that were sent to the cohort in it.
    #[serde(default)]
    pub bytes_down: u64,
}

/// The session of secure aggregation of a round. Of U1 to U5 only sizes are here; who was in which is in
/// [`AssignmentView::sets`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionView {
    /// t: dealers, signatures and answers it takes.
    pub threshold: u32,
    /// k_m: mask neighbours that each participant draws.
    pub out_degree: u32,
    /// t_m: drawn neighbours that must still be there.
    pub min_out: u32,
    /// γn: participants that may collude with the coordinator.
    pub tolerated_corrupt: u32,
    /// U1: in the roster.
    pub advertised: u32,
    /// U2: dealt shares.
    pub shared: u32,
    /// U3: whose inputs are in the sum.
    pub included: u32,
    /// U4: signed that.
    pub signed: u32,
    /// U5: answered, so that the sum was opened.
    pub unmasked: u32,
}

/// How the sum was computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SumWorkView {
    /// What added the inputs.
    pub sum_device: String,
    /// What took the masks off.
    pub unmask_device: String,
    /// Seconds of adding, in the last step.
    pub sum_seconds: f64,
    /// Seconds of taking masks off.
    pub unmask_seconds: f64,
    /// Keystream that was generated for it.
    pub keystream_bytes: u64,
}

/// A weighted mean over the cohort.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MetricView {
    /// The mean.
    pub value: f64,
    /// Examples it was taken over.
    pub count: u64,
}

/// A reference to a model version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelVersionRef {
    /// Its number.
    pub version: u32,
    /// Of its safetensors file.
    pub sha256: Digest,
}

/// Updates of a round that were trained ahead of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BufferView {
    /// When rounds of the task open.
    pub mode: Mode,
    /// How many updates were drawn.
    pub updates: u32,
    /// The oldest version that one of them started from.
    pub oldest_version: u32,
    /// The newest.
    pub newest_version: u32,
    /// Versions that they are behind the round's base, on average.
    pub mean_staleness: f64,
    /// The most.
    pub max_staleness: u32,
    /// What they count for, on average: 1 if none is behind.
    pub mean_weight: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A round (one attempt).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RoundView {
    /// The task.
    pub task: TaskId,
    /// Counts from 1.
    pub number: u32,
    /// Counts from 1.
    pub attempt: u32,
    /// Where it stands.
    pub state: RoundState,
    /// Why it failed.
    pub failure: Option<FailureReason>,
    /// It failed after masked inputs may have been sent: its number is not tried again, the next round trains afresh.
    #[serde(default)]
    pub spent: bool,
    /// Its phases so far, in order.
    pub phases: Vec<PhaseView>,
    /// Participants drawn.
    pub cohort: u32,
    /// Masked inputs accepted.
    pub reported: u32,
    /// Participants that dropped out.
    pub dropped: u32,
    /// How many dropped out in which way.
    pub dropped_why: BTreeMap<AssignmentState, u32>,
    /// How many dropped out in which phase. Whoever dropped out after its input was accepted is a part of the sum.
    #[serde(default)]
    pub dropped_in: BTreeMap<RoundState, u32>,
    /// The session of secure aggregation, if the task has it and the cohort was drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure_aggregation: Option<SessionView>,
    /// The groups of the cohort, in order, if it was divided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupView>,
    /// How the sum was computed, once it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<SumWorkView>,
    /// Bytes of accepted masked inputs.
    pub bytes_up: u64,
    /// Bytes of the base model sent to the cohort.
    pub bytes_down: u64,
    /// Weighted means over the cohort, of the base model and of the training.
    pub metrics: BTreeMap<String, MetricView>,
    /// How metrics are distributed over the participants of the cohort, where the task asks for it or has personalization.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub distributions: BTreeMap<String, DistributionView>,
    /// What the task's codec saves and costs, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionView>,
    /// The updates that the round aggregates, where they were trained ahead of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<BufferView>,
    /// The privacy budget spent when this round had released its sum, this release included; none without a mechanism, and
    /// before the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<EpsilonView>,
    /// The version the cohort started from.
    pub base: ModelVersionRef,
    /// Participants that gave an update from this very model before, hidden by masks alone, in another round or task, and so give none
    /// in this one, unless it is proven that the sum was never opened. Told while the round selects, and if it drew too few.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub base_given_by: u32,
    /// What nine of ten of the cohort's lines take at most for a round trip, in milliseconds, where that has moved the deadlines of
    /// its phases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<u32>,
    /// The version the round made.
    pub model: Option<ModelVersionRef>,
    /// The round's base did not pass the task's gate: what the round made is this earlier version once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_to: Option<u32>,
    /// When it opened.
    pub opened_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// From opening to end, or until now.
    pub seconds: f64,
}

/// One group of a cohort that was divided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupView {
    /// Counts from 0.
    pub group: u32,
    /// Participants drawn into it.
    pub members: u32,
    /// Of those, whose masked inputs were accepted.
    pub reported: u32,
    /// How unusual a robust rule found its mean: about 1 is usual, several times that is worth a look. None before the sums were
    /// opened, and of a group that was left out because too few of it went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<f64>,
}

/// Quantiles of a metric over participants. They are read off a histogram of the cohort, which the sum of all updates holds:
/// under secure aggregation nobody sees any single value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DistributionView {
    /// Participants that measured it.
    pub participants: u64,
    /// A tenth of them are below.
    pub p10: f64,
    /// A quarter.
    pub p25: f64,
    /// Half.
    pub p50: f64,
    /// Three quarters.
    pub p75: f64,
    /// Nine tenths.
    pub p90: f64,
    /// Width of the histogram's bins: no quantile is farther off than this.
    pub resolution: f64,
}

/// One participant's place in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AssignmentView {
    /// Who.
    pub participant: ParticipantId,
    /// What it is called.
    pub name: String,
    /// Where it stands.
    pub state: AssignmentState,
    /// In its own words or as a code, if it gave up.
    pub detail: Option<String>,
    /// The phase in which it stopped answering, or its group was left out, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_in: Option<RoundState>,
    /// The group it was drawn into, counted from 0, if the cohort was divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// The sets of secure aggregation it is in: `U1` advertised, `U2` shared, `U3` included, `U4` signed, `U5` unmasked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
    /// Size of its masked input.
    pub bytes_up: Option<u64>,
    /// How unusual a robust rule found its update, or its group's mean: about 1 is usual, several times that is worth a look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<f64>,
    /// Every state it had.
    pub history: Vec<StatusChange>,
}

/// A model version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelView {
    /// The task.
    pub task: TaskId,
    /// Counts from 0.
    pub version: u32,
    /// Of the safetensors file.
    pub sha256: Digest,
    /// Size of the safetensors file.
    pub bytes: u64,
    /// The round that made it.
    pub round: Option<u32>,
    /// The version it was made from.
    pub parent: Option<u32>,
    /// When it was published.
    pub created_at: Timestamp,
}

/// A participant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ParticipantView {
    /// Its id.
    pub id: ParticipantId,
    /// What it is called.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it enrolled.
    pub enrolled_at: Timestamp,
    /// When its certificate ends.
    pub certificate_expires_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// When it last checked in; to within the check-in's lifetime.
    pub last_seen_at: Option<Timestamp>,
    /// Rounds it was drawn into, over all tasks.
    pub participations: u32,
}
