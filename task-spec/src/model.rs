//! `[model]` of a task: its tensors, and which of them stay on the device.

use serde::{Deserialize, Serialize};

/// The model: its tensors, and which of them stay at home.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelSpec {
    /// For participants whose SDK brings the model, for example `{ kind = "mlp", … }`; the coordinator does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub architecture: Option<serde_json::Value>,
    /// Every tensor, in the order of the flat vector. May be left out in a task file whose architecture `tributary` knows.
    #[serde(default)]
    pub tensors: Vec<TensorDeclaration>,
    /// Patterns (`fc2.*`) of tensors that each participant keeps to itself.
    #[serde(default)]
    pub personal: Vec<String>,
    /// Seed of the initial values.
    #[serde(default)]
    pub seed: u64,
}

/// One tensor and how it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TensorDeclaration {
    /// Unique within the model.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<u64>,
    /// Initial values.
    #[serde(default)]
    pub init: Initial,
}

/// Initial values of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Initial {
    /// All zero.
    #[default]
    Zeros,
    /// Uniform in (-bound, bound).
    Uniform {
        /// Positive and finite.
        bound: f32,
    },
}
