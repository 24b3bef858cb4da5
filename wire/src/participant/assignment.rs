//! What a participant is given to do.

use federation::id::{Digest, TaskId};
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};
use task_spec::{Analytics, Compression, ModelSpec, Personalization, Solver, Staleness, TrainingPlan};

use super::{PrivacyTerms, SessionTerms};

/// A place in a round, with everything needed to take it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Assignment {
    /// The task.
    pub task: TaskId,
    /// The task's name.
    pub task_name: String,
    /// The round's number.
    pub round: u32,
    /// The round's attempt.
    pub attempt: u32,
    /// The tensors, and which stay at home.
    pub model: ModelSpec,
    /// The version to start from.
    pub base: ModelRef,
    /// Where updates are trained ahead of rounds: digests of the files of the version before `base`, of the one before that, and
    /// so on, as many as `encoding.staleness` lets an update be behind, or as there are. A participant whose update started from
    /// one of them checks its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Digest>,
    /// How to train.
    pub training: TrainingPlan,
    /// How the update is encoded.
    pub encoding: Encoding,
    /// Metrics to report, in this order; none travel where a privacy mechanism is at work.
    pub metrics: Vec<String>,
    /// How the sum is kept from telling about one participant; it takes the place of clip range, norm and weight in the
    /// encoding. Without it nothing is promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privacy: Option<PrivacyTerms>,
    /// How the update is hidden from the coordinator; without it the coordinator's operator can read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure_aggregation: Option<SessionTerms>,
    /// Asks the participant to tell its training loss, coarsely, with its next check-ins: the task chooses by it. Under secure
    /// aggregation it may decline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub report_loss: bool,
    /// The last place of this participant in a round of the task that ended well with its update in the sum, where a solver needs
    /// to know; nothing if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// The update that the round wants, trained ahead of it: nothing is trained in the round, and `base` is what the update's
    /// age is counted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<HeldUpdate>,
    /// Participants in the cohort, or in this one's group of it; where privacy rests on nobody knowing how many were drawn, how
    /// many are expected.
    pub cohort: u32,
    /// How many groups of that size the cohort was divided into. What a participant is told only: it sees its own group's
    /// roster, and rests on that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
    /// When collection closes at the latest, by the coordinator's clock.
    pub deadline_at: Timestamp,
    /// The same from now on, for a participant whose clock differs.
    pub remaining_ms: u64,
}

/// An update that a participant has trained ahead of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeldUpdate {
    /// Which training made it.
    pub serial: u32,
    /// The version it started from.
    pub version: u32,
}

/// A model version to fetch from [`crate::route::MODEL_PARAMETERS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelRef {
    /// Its number.
    pub version: u32,
    /// Of the safetensors file: the participant checks it.
    pub sha256: Digest,
    /// Size of the safetensors file.
    pub bytes: u64,
}

/// An attempt at a round of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Counted {
    /// The round's number.
    pub round: u32,
    /// The round's attempt.
    pub attempt: u32,
}

/// A codec, and what all who use it draw from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CodecTerms {
    /// As the operator wrote it.
    pub codec: Compression,
    /// Of the model: a task that is repeated from the same seed draws the same.
    pub seed: u64,
}

/// How an update becomes integers. Both sides derive the scale and the length from these numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Encoding {
    /// Words are integers modulo 2^bits; codecs whose uploads add up choose their own.
    pub modulus_bits: u8,
    /// Coordinates are clipped to ± this.
    pub clip_range: f32,
    /// L2 norm the update is scaled down to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f32>,
    /// Cap of the weight.
    pub max_weight: u32,
    /// Largest cohort that the headroom was proven for.
    pub max_cohort: u32,
    /// The codec; without it an update has a word per parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<CodecTerms>,
    /// What is computed instead of a trained model: its rows are added up as this says, the base is its state so far, and
    /// nothing is clipped, weighed or measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analytics: Option<Analytics>,
    /// How the participant comes by a model of its own, and with it by its update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personalization: Option<Personalization>,
    /// What the update is besides the difference of two models: FedNova adds a word for how far its steps go, SCAFFOLD a second
    /// half for the control variate, whose server's is in the file of the base. Its steps are always said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solver: Option<Solver>,
    /// What an update counts for that was trained ahead of its round. The participant scales it, before it is quantized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staleness: Option<Staleness>,
    /// The cohort is divided, and each group's sum is opened on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupTerms>,
}

/// What a participant agrees to where the cohort is divided into groups: its update is hidden among those of its group, not of
/// the cohort, and the coordinator sees the sum of each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupTerms {
    /// How many are in a group: its roster has so many.
    pub size: u32,
}
