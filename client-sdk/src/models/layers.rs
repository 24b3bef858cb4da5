//! Building blocks of all models: bounded sizes, tensors with initial values.

use learning::{Layout, LayoutError};
use task_spec::{Initial, TensorDeclaration};

/// Maximum value of any size of a model.
pub const MAX_SIZE: u32 = 1 << 20;

/// Default training settings of a model on small data, chosen by experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelDefaults {
    /// Passes over the local data in a round.
    pub epochs: u32,
    /// Examples in a mini-batch.
    pub batch_size: u32,
    /// Of the local optimizer.
    pub learning_rate: f64,
    /// A pattern of the tensors of the last layer, as far as they leave something to share.
    pub last_layer: String,
    /// Patterns of the weights of linear layers, which can have adapters.
    pub linear_layers: Vec<String>,
}

/// What a model is fed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Rows of this many `f32`s, one label each.
    Features(usize),
    /// Sequences of characters, numbered below the vocabulary's size.
    Characters,
    /// The inputs of a graph by name, other than the forms above.
    Tensors,
}

/// Why sizes do not make a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchitectureError {
    /// There is no ready model of this name.
    #[error("there is no model `{0}`; there are {1}")]
    Kind(String, String),
    /// The model cannot be fed with these data.
    #[error("{kind} {why}")]
    Misfit {
        /// Name of the model.
        kind: &'static str,
        /// What it takes, and what the data are.
        why: &'static str,
    },
    /// A size that is zero or beyond what is allowed.
    #[error("{kind}: `{size}` is {value}; it must be from {least} to {most}")]
    Size { kind: &'static str, size: &'static str, value: u64, least: u32, most: u32 },
    /// The sizes are in range, but their product is not.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// Numbers of an example, for a model that takes rows of them.
pub(super) fn rows(kind: &'static str, input: InputKind) -> Result<u32, ArchitectureError> {
    match input {
        InputKind::Features(width) => u32::try_from(width).map_err(|_| {
            let (value, most) = (width as u64, MAX_SIZE);
            ArchitectureError::Size { kind, size: "inputs", value, least: 1, most }
        }),
        InputKind::Characters => {
            Err(ArchitectureError::Misfit { kind, why: "takes rows of numbers, and these data are text" })
        }
        InputKind::Tensors => {
            Err(ArchitectureError::Misfit { kind, why: "takes rows of numbers, and these data are tensors" })
        }
    }
}

/// The shape of a tensor; `None` if there is none of this name, or no model has its dimensions.
pub(super) fn shape(layout: &Layout, name: &str) -> Option<Vec<u32>> {
    let tensor = &layout.tensors()[layout.find(name)?];
    tensor.shape.iter().map(|&dimension| u32::try_from(dimension).ok()).collect()
}

/// Refuses a size outside `1..=most`.
pub(super) fn check(kind: &'static str, size: &'static str, value: u32, most: u32) -> Result<(), ArchitectureError> {
    check_from(kind, size, value, 1, most)
}

/// Checks that a size is in `least..=most`.
pub(super) fn check_from(
    kind: &'static str,
    size: &'static str,
    value: u32,
    least: u32,
    most: u32,
) -> Result<(), ArchitectureError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(ArchitectureError::Size { kind, size, value: value.into(), least, most })
    }
}

/// Patterns as owned text.
pub(super) fn patterns(patterns: &[&str]) -> Vec<String> {
    patterns.iter().map(|&pattern| pattern.to_owned()).collect()
}

/// A tensor drawn uniformly from `±1 / sqrt(fan_in)`.
pub(super) fn uniform(name: impl Into<String>, shape: &[u32], fan_in: u32) -> TensorDeclaration {
    // Division and square root round once each in IEEE 754: every device gets the same bound.
    #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
    let bound = (1.0 / f64::from(fan_in)).sqrt() as f32;
    drawn(name, shape, Initial::Uniform { bound })
}

pub(super) fn drawn(name: impl Into<String>, shape: &[u32], init: Initial) -> TensorDeclaration {
    let shape = shape.iter().map(|&dimension| u64::from(dimension)).collect();
    TensorDeclaration { name: name.into(), shape, init }
}
