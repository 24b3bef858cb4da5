//! Why training or evaluating did not work.

use learning::WrongLength;

use super::config::ConfigError;
use super::device::DeviceError;
use crate::models::ArchitectureError;

/// Why there is no result. Each of these is the participant's own affair: nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// Sizes that do not make a model.
    #[error(transparent)]
    Architecture(#[from] ArchitectureError),
    /// Numbers that cannot train.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device is not usable.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The parameters are another model's.
    #[error("the parameters' tensors are not those of the {kind} model the task names")]
    OtherModel {
        /// Kind of the model.
        kind: &'static str,
    },
    /// Nothing to learn from.
    #[error("there are no examples")]
    NoExamples,
    /// Text for a classifier, or labelled rows for a character model.
    #[error("the {kind} model needs {needs}")]
    WrongKind {
        /// Kind of the model.
        kind: &'static str,
        /// What it is fed with.
        needs: &'static str,
    },
    /// Rows of another width than the model's input.
    #[error("examples have {got} features; the {kind} model takes {expected}")]
    Width {
        /// Kind of the model.
        kind: &'static str,
        /// What the model takes.
        expected: usize,
        /// What was given.
        got: usize,
    },
    /// Two arrays that do not belong together.
    #[error("got {got} {what} where {expected} were expected")]
    Lengths {
        /// Which.
        what: &'static str,
        /// How many it should be.
        expected: usize,
        /// How many there are.
        got: usize,
    },
    /// A label or character the model does not know.
    #[error("example {example} has the label {label}; this model knows 0 to {most}")]
    Label {
        /// Index of the example (or of the character).
        example: usize,
        /// The label.
        label: u32,
        /// Highest label known.
        most: u32,
    },
    /// The loss or a parameter is not finite any more.
    #[error(
        "training diverged: the loss or a parameter is not finite at step {step} with learning rate {learning_rate}; \
         lower the learning rate, and check that the examples are finite"
    )]
    Diverged {
        /// Step it was seen at, from 1.
        step: u64,
        /// Learning rate in use.
        learning_rate: f32,
    },
    /// Constraints that are not about this model, or leave nothing to train.
    #[error("the constraints of training do not fit: {0}")]
    Constraints(&'static str),
    /// The model gives a loss that is not finite.
    #[error("the model's loss on these examples is not finite: its parameters or the examples are not")]
    NotFinite,
    /// A vector of another length than the model's.
    #[error(transparent)]
    WrongLength(#[from] WrongLength),
    /// A failure inside candle: out of memory, a driver that went away.
    #[error("the device failed: {0}")]
    Backend(#[from] candle_core::Error),
}
