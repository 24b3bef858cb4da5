//! Fully connected layers with ReLU between them; 784-200-10 by default.

use learning::Layout;
use serde::{Deserialize, Serialize};
use task_spec::TensorDeclaration;

use super::layers::{ArchitectureError, InputKind, MAX_SIZE, ModelDefaults, check, patterns, rows, shape, uniform};

/// Maximum number of hidden layers.
pub const MAX_HIDDEN_LAYERS: u32 = 16;

/// Sizes of a multi-layer perceptron.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mlp {
    /// Number of features, 1 to [`MAX_SIZE`].
    pub inputs: u32,
    /// Units of each hidden layer, 1 to [`MAX_SIZE`]; at most [`MAX_HIDDEN_LAYERS`]. None makes the model linear.
    pub hidden: Vec<u32>,
    /// Number of classes, 1 to [`MAX_SIZE`].
    pub classes: u32,
}

impl Default for Mlp {
    fn default() -> Self {
        Self { inputs: 784, hidden: vec![200], classes: 10 }
    }
}

impl Mlp {
    /// Inputs, hidden units, classes.
    pub(crate) fn widths(&self) -> Vec<u32> {
        let mut widths = vec![self.inputs];
        widths.extend(&self.hidden);
        widths.push(self.classes);
        widths
    }

    pub(super) fn fitting(input: InputKind, classes: u32) -> Result<Self, ArchitectureError> {
        Ok(Self { inputs: rows("mlp", input)?, classes, ..Self::default() })
    }

    /// The model that may have tensors of these request_ids and shapes.
    pub(super) fn of_tensors(layout: &Layout) -> Option<Self> {
        let shapes: Vec<_> = (1..).map_while(|layer| shape(layout, &format!("fc{layer}.weight"))).collect();
        let outputs: Option<Vec<u32>> = shapes.iter().map(|shape| shape.first().copied()).collect();
        let mut hidden = outputs?;
        let classes = hidden.pop()?;
        Some(Self { inputs: *shapes.first()?.get(1)?, hidden, classes })
    }

    pub(super) fn defaults(&self) -> ModelDefaults {
        ModelDefaults {
            epochs: 2,
            batch_size: 10,
            learning_rate: 0.1,
            last_layer: format!("fc{}.*", self.hidden.len() + 1),
            linear_layers: patterns(&["fc*.weight"]),
        }
    }

    pub(super) fn tensors(&self) -> Result<Vec<TensorDeclaration>, ArchitectureError> {
        check("mlp", "inputs", self.inputs, MAX_SIZE)?;
        check("mlp", "classes", self.classes, MAX_SIZE)?;
        if self.hidden.len() > MAX_HIDDEN_LAYERS as usize {
            let (value, most) = (self.hidden.len() as u64, MAX_HIDDEN_LAYERS);
            return Err(ArchitectureError::Size { kind: "mlp", size: "hidden layers", value, least: 0, most });
        }
        self.hidden.iter().try_for_each(|&units| check("mlp", "hidden", units, MAX_SIZE))?;
        let mut tensors = Vec::new();
        for (index, pair) in self.widths().windows(2).enumerate() {
            let layer = index + 1;
            tensors.push(uniform(format!("fc{layer}.weight"), &[pair[1], pair[0]], pair[0]));
            tensors.push(uniform(format!("fc{layer}.bias"), &[pair[1]], pair[0]));
        }
        Ok(tensors)
    }
}
