//! Errors of training and evaluation.

use learning::WrongLength;

use super::config::ConfigError;
use super::device::DeviceError;
use crate::models::ArchitectureError;

/// Reasons there is no result. They concern only the participant: nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The sizes do not form a model.
    #[error(transparent)]
    Architecture(#[from] ArchitectureError),
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device is not usable.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The parameters belong to another model.
    #[error("the parameters' tensors are not those of the {kind} model the task names")]
    OtherModel { kind: &'static str },
    /// Nothing to learn from.
    #[error("there are no examples")]
    NoExamples,
    /// Text for a classifier, or labelled rows for a character model.
    #[error("the {kind} model needs {needs}")]
    WrongKind {
        kind: &'static str,
        /// Kind of input that the model takes.
        needs: &'static str,
    },
    /// The rows have another width than the model's input.
    #[error("examples have {got} features; the {kind} model takes {expected}")]
    Width {
        kind: &'static str,
        /// Width of the model's input.
        expected: usize,
        got: usize,
    },
    /// Two arrays differ in length.
    #[error("got {got} {what} where {expected} were expected")]
    Lengths { what: &'static str, expected: usize, got: usize },
    /// The label or character is out of range.
    #[error("example {example} has the label {label}; this model knows 0 to {most}")]
    Label {
        /// Index of the example (or of the character).
        example: usize,
        label: u32,
        /// Largest valid label.
        most: u32,
    },
    /// The loss or a parameter is no longer finite.
    #[error(
        "training diverged: the loss or a parameter is not finite at step {step} with learning rate {learning_rate}; \
         lower the learning rate, and check that the examples are finite"
    )]
    Diverged {
        /// Step at which it was detected, from 1.
        step: u64,
        learning_rate: f32,
    },
    /// The constraints are for another model, or leave nothing to train.
    #[error("the constraints of training do not fit: {0}")]
    Constraints(&'static str),
    /// The training has left its state and stopped.
    #[error("training was paused")]
    Paused,
    /// The model's loss is not finite.
    #[error("the model's loss on these examples is not finite: its parameters or the examples are not")]
    NotFinite,
    /// A vector does not have the model's length.
    #[error(transparent)]
    WrongLength(#[from] WrongLength),
    /// The inputs do not fit the model.
    #[error("the {kind} model takes {what}")]
    Inputs {
        kind: &'static str,
        /// What it takes, and what it got.
        what: String,
    },
    /// The graph does not compute these sizes.
    #[error(transparent)]
    Graph(graph::GraphError),
    /// A node of the graph cannot compute, or its result is not finite.
    #[error("training stopped: {0}; lower the learning rate, and check the examples")]
    Execution(String),
    /// A node of the graph cannot compute these inputs, for example an integer outside a table of embeddings.
    #[error("the model cannot compute these inputs: {0}")]
    Prediction(String),
    /// A failure inside candle: out of memory, or a lost driver.
    #[error("the device failed: {0}")]
    #[cfg(feature = "candle")]
    Backend(#[from] candle_core::Error),
}
