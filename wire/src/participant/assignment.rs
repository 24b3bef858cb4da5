//! Assignments: a participant's work in a round.

use federation::id::{Attempt, Digest, TaskId};
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};
use task_spec::{Analytics, Compression, ModelSpec, Personalization, Solver, Staleness, TrainingPlan};

use super::{PrivacyTerms, SessionTerms};
use crate::provenance::SignedProvenance;

/// A place in a round, with everything needed to take part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Assignment {
    pub task: TaskId,
    pub task_name: String,
    pub round: u32,
    pub attempt: u32,
    /// The tensors, and which of them stay local.
    pub model: ModelSpec,
    /// The version to start from.
    pub base: ModelRef,
    /// Where `base` comes from, signed: [`crate::provenance`]. Absent from coordinators that keep no records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<SignedProvenance>,
    /// If updates are trained ahead of rounds: digests of the files of the versions before `base`, newest first, as
    /// many as `encoding.staleness` allows or exist. A participant whose update started from one of them verifies that
    /// it is among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Digest>,
    pub training: TrainingPlan,
    /// How the update is encoded.
    pub encoding: Encoding,
    /// Metrics to report, in this order; empty if a privacy mechanism is used.
    pub metrics: Vec<String>,
    /// Terms of the privacy mechanism, which replace clip range, norm and weight of the encoding. Without them nothing
    /// is guaranteed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privacy: Option<PrivacyTerms>,
    /// Terms of secure aggregation; without them the coordinator's operator can read the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure_aggregation: Option<SessionTerms>,
    /// Asks the participant to report its training loss, quantized, with its next check-ins, because the task selects
    /// by loss. Under secure aggregation it may decline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub report_loss: bool,
    /// The participant's last successful round of the task with its update in the sum, if a solver needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// The update to send, if it was trained ahead of the round: nothing is trained in the round, and the update's age
    /// is relative to `base`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<HeldUpdate>,
    /// Number of participants in the cohort, or in this participant's group; the expected number if privacy relies on
    /// the secrecy of the cohort size.
    pub cohort: u32,
    /// Number of groups that the cohort was divided into. Informational: the participant sees and relies on its own
    /// group's roster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
    /// The trace of this update, if the coordinator follows it ([`crate::TraceContext`]). Whatever else it says is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Deadline of collection, by the coordinator's clock.
    pub deadline_at: Timestamp,
    /// Time until the deadline, for a participant whose clock differs.
    pub remaining_ms: u64,
    /// Duration of collection, if key shares are dealt before it: it begins when all of them have come, often long before their deadline,
    /// and then ends earlier than `deadline_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collect_ms: Option<u64>,
}

impl Assignment {
    /// The attempt of the assignment.
    #[must_use]
    pub fn attempt_key(&self) -> Attempt {
        Attempt { task: self.task, round: self.round, attempt: self.attempt }
    }
}

/// An update that a participant has trained ahead of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeldUpdate {
    /// Serial number of the training.
    pub serial: u32,
    /// The version it started from.
    pub version: u32,
}

/// A model version to fetch from [`crate::route::MODEL_PARAMETERS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelRef {
    pub version: u32,
    /// Of the safetensors file; the participant verifies it.
    pub sha256: Digest,
    /// Size of the safetensors file, in bytes.
    pub bytes: u64,
}

/// An attempt at a round of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Counted {
    pub round: u32,
    pub attempt: u32,
}

/// A codec and its shared seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CodecTerms {
    /// As the operator wrote it.
    pub codec: Compression,
    /// Seed of the model: a task repeated with the same seed draws the same.
    pub seed: u64,
}

/// The encoding of updates as integers. Both sides derive the scale and the length from these numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Encoding {
    /// Words are integers modulo 2^bits; summable codecs choose their own modulus.
    pub modulus_bits: u8,
    /// Coordinates are clipped to ± this.
    pub clip_range: f32,
    /// Bound on the L2 norm of the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f32>,
    /// Cap on the weight.
    pub max_weight: u32,
    /// Maximum cohort for which headroom was proven.
    pub max_cohort: u32,
    /// The codec; by default an update has one word per parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<CodecTerms>,
    /// The analysis to compute instead of training a model: the participant's rows are summed as it specifies, the base
    /// is its current state, and nothing is clipped, weighted or measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analytics: Option<Analytics>,
    /// How the participant computes its personalized model, and with it its update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personalization: Option<Personalization>,
    /// Extensions of the update: FedNova adds a word for the distance its steps cover; SCAFFOLD adds the control
    /// variate as a second half, and the server's is in the base's file. Its steps are always given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solver: Option<Solver>,
    /// The weight of an update that was trained ahead of its round. The participant scales the update before quantizing
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staleness: Option<Staleness>,
    /// Present if the cohort is divided and each group's sum is opened separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupTerms>,
}

/// The terms of a divided cohort: a participant's update is hidden among those of its group, not of the cohort, and the
/// coordinator sees the sum of each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupTerms {
    /// Number of participants in a group, and so in its roster.
    pub size: u32,
}
