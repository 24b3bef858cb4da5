//! Errors of training and evaluation.

use learning::WrongLength;

use super::config::ConfigError;
use super::device::DeviceError;
use crate::models::ArchitectureError;

/// Reasons why a training fails. They concern only the participant, before it sends an update.
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
    /// The list of examples is empty.
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
    /// The loss or a parameter has become infinite or NaN.
    #[error(
        "training diverged: the loss or a parameter is not finite at step {step} with learning rate {learning_rate}; \
         lower the learning rate, and check that the examples are finite"
    )]
    Diverged {
        /// Step at which it was detected, from 1.
        step: u64,
        learning_rate: f32,
    },
    /// The constraints are for another model, or freeze all of it.
    #[error("the constraints of training do not fit: {0}")]
    Constraints(&'static str),
    /// The training was cancelled or paused within a step; the step's work is lost.
    #[error("training was interrupted within a step")]
    Interrupted,
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
        /// The required input, and the given one.
        what: String,
    },
    /// The graph does not compute these sizes.
    #[error(transparent)]
    Graph(graph::GraphError),
    /// A training step on one example takes too much memory.
    #[error(
        "a training step on one example takes {bytes} bytes, and this device's limit is {limit} (ModelTrainer::with_memory)"
    )]
    Memory {
        bytes: u64,
        /// The app's limit, in bytes.
        limit: u64,
    },
    /// A batch that cannot be divided takes too much memory.
    #[error(
        "batch normalization computes a batch of {examples} examples at once, which takes {bytes} bytes, and the limit is {limit}; \
         lower training.batch_size, or freeze the normalization"
    )]
    BatchMemory {
        /// Size of the batch.
        examples: usize,
        bytes: u64,
        /// The app's limit, in bytes.
        limit: u64,
    },
    /// The batches are too small for a batch normalization.
    #[error(
        "batch normalization needs more than one value per channel: at least {least} examples in a batch, and there are {got}"
    )]
    SmallBatch {
        least: usize,
        /// Number of examples, or of those in a batch.
        got: usize,
    },
    /// A node of the graph cannot compute, or its result is not finite.
    #[error("training stopped: {0}; lower the learning rate, and check the examples")]
    Execution(String),
    /// The module of an app does not have the task's tensors.
    #[error("the module is not the task's: {0}")]
    #[cfg(feature = "candle")]
    OtherTensors(String),
    /// Tensors have no gradient in an app's module.
    #[error(
        "the loss has no gradient for {tensors}: the module does not use the tensor, or an operation of candle cuts the gradient \
         (LayerNorm::forward, RmsNorm::forward, softmax_last_dim, rope, detach); use an operation with a gradient, or freeze the \
         tensor with `CandleTrainer::with_frozen`"
    )]
    #[cfg(feature = "candle")]
    NoGradient {
        /// Names of the tensors.
        tensors: String,
    },
    /// A gradient of an app's module is wrong.
    #[error(
        "the gradient of `{tensor}` is wrong: the loss changes by {difference:.4e} along a direction, and the gradient gives \
         {computed:.4e}; an operation of candle has a wrong gradient (conv1d with several examples, max_pool2d, avg_pool2d, \
         upsample_nearest2d, scatter), or the module detaches a value; use another operation, or \
         `CandleTrainer::without_gradient_check`"
    )]
    #[cfg(feature = "candle")]
    WrongGradient {
        /// Name of the tensor.
        tensor: String,
        /// Derivative by the gradient.
        computed: f64,
        /// Derivative by a central difference.
        difference: f64,
    },
    /// The loss of an app's module is random.
    #[error(
        "the loss of the same examples and parameters is {first}, then {second}: the module draws random numbers (candle's dropout \
         has no seed), so a training cannot be repeated or continued after a pause; leave the draws out, or use \
         `CandleTrainer::without_gradient_check`"
    )]
    #[cfg(feature = "candle")]
    RandomLoss {
        /// The first loss.
        first: f64,
        /// The second loss.
        second: f64,
    },
    /// The loss of an app's module is not one number.
    #[error("the loss has shape {0:?}; it must be one number, the mean over the batch (`mean_all`)")]
    #[cfg(feature = "candle")]
    LossShape(Vec<usize>),
    /// An app's module failed.
    #[error("the app's module failed: {0}")]
    #[cfg(feature = "candle")]
    Module(#[source] candle_core::Error),
    /// A node of the graph cannot compute these inputs, for example an integer outside a table of embeddings.
    #[error("the model cannot compute these inputs: {0}")]
    Prediction(String),
    /// A failure inside candle: out of memory, or a lost driver.
    #[error("the device failed: {0}")]
    #[cfg(feature = "candle")]
    Backend(#[from] candle_core::Error),
}
