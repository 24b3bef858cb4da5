//! Softmax regression, the model of the federated Synthetic(α, β) benchmark.

use learning::Layout;
use serde::{Deserialize, Serialize};
use task_spec::{Initial, TensorDeclaration};

use super::layers::{ArchitectureError, InputKind, MAX_SIZE, ModelDefaults, check, drawn, patterns, rows, shape};

/// Sizes of a softmax regression. It starts at zero, since its loss is convex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Number of features, 1 to [`MAX_SIZE`].
    pub inputs: u32,
    /// Number of classes, 1 to [`MAX_SIZE`].
    pub classes: u32,
}

impl Linear {
    pub(super) fn fitting(input: InputKind, classes: u32) -> Result<Self, ArchitectureError> {
        Ok(Self { inputs: rows("linear", input)?, classes })
    }

    /// The model that may have tensors of these request_ids and shapes.
    pub(super) fn of_tensors(layout: &Layout) -> Option<Self> {
        let [classes, inputs] = shape(layout, "fc.weight")?[..] else { return None };
        Some(Self { inputs, classes })
    }

    pub(super) fn defaults() -> ModelDefaults {
        ModelDefaults {
            epochs: 1,
            batch_size: 10,
            learning_rate: 0.01,
            last_layer: "fc.bias".to_owned(),
            linear_layers: patterns(&["fc.weight"]),
        }
    }

    pub(super) fn tensors(&self) -> Result<Vec<TensorDeclaration>, ArchitectureError> {
        check("linear", "inputs", self.inputs, MAX_SIZE)?;
        check("linear", "classes", self.classes, MAX_SIZE)?;
        Ok(vec![
            drawn("fc.weight", &[self.classes, self.inputs], Initial::Zeros),
            drawn("fc.bias", &[self.classes], Initial::Zeros),
        ])
    }
}
