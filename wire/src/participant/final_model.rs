//! The final model version of an ended task.

use serde::{Deserialize, Serialize};
use task_spec::{ModelSpec, TrainingPlan};

use super::{Encoding, ModelRef, PrivacyTerms};
use crate::provenance::SignedProvenance;

/// The last version that a task has published, with the same facts that an assignment gives of its base, so that it is verified in the
/// same way. Nothing is trained from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FinalModel {
    pub task_name: String,
    /// The version to fetch.
    pub version: ModelRef,
    /// Its signed record ([`crate::provenance`]). A version without a record is not sent.
    pub provenance: SignedProvenance,
    /// Its tensors and architecture. This field and those that follow are the terms of rounds that would start from the version; the record
    /// has their digest.
    pub model: ModelSpec,
    pub training: TrainingPlan,
    pub encoding: Encoding,
    pub metrics: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privacy: Option<PrivacyTerms>,
}
