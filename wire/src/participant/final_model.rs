//! The last version of a task that is over, for an app that keeps models.

use serde::{Deserialize, Serialize};
use task_spec::{ModelSpec, TrainingPlan};

use super::{Encoding, ModelRef, PrivacyTerms};
use crate::provenance::SignedProvenance;

/// The last version that a task has published, with what an assignment says of the version that it starts from: so it is verified in
/// the same way. Nothing is trained from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FinalModel {
    pub task_name: String,
    /// The version to fetch.
    pub version: ModelRef,
    /// Where it comes from, signed: [`crate::provenance`]. A version without a record is not told of.
    pub provenance: SignedProvenance,
    /// Its tensors and architecture. With the fields that follow it is what the record is of: the terms of rounds that would start from it.
    pub model: ModelSpec,
    pub training: TrainingPlan,
    pub encoding: Encoding,
    pub metrics: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privacy: Option<PrivacyTerms>,
}
