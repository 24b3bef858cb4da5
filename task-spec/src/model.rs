//! `[model]` of a task: its tensors, and which of them stay local.

use serde::{Deserialize, Serialize};

use crate::TableSpec;

/// The model: its tensors, and which of them stay local.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelSpec {
    /// Describes the model to participants whose SDK provides it, for example `{ kind = "mlp", … }`; the coordinator
    /// ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub architecture: Option<serde_json::Value>,
    /// Which columns of their tables participants learn from, if their data are tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableSpec>,
    /// All tensors, in the order of the flat vector. May be omitted in a task file if `tributary` knows the
    /// architecture.
    #[serde(default)]
    pub tensors: Vec<TensorDeclaration>,
    /// Patterns (`fc2.*`) of the tensors that stay local to each participant.
    #[serde(default)]
    pub personal: Vec<String>,
    /// Seed of the initial values.
    #[serde(default)]
    pub seed: u64,
}

/// One tensor and its initial values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TensorDeclaration {
    /// Unique within the model.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<u64>,
    #[serde(default)]
    pub init: Initial,
}

/// Initial values of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Initial {
    #[default]
    Zeros,
    /// Uniform in (-bound, bound).
    Uniform {
        /// Positive and finite.
        bound: f32,
    },
}
