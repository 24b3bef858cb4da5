//! Choices that a file leaves open.

use std::collections::BTreeMap;

/// What happens to dropout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dropout {
    /// Nodes that drop elements in training do so on devices.
    #[default]
    Keep,
    /// Every dropout is left out.
    Drop,
}

/// How batch normalizations train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchNorm {
    /// By their running statistics, which are constants.
    #[default]
    Frozen,
    /// By the statistics of the batch. Running statistics are parameters, which a training step moves.
    Batch,
}

/// Choices that a file leaves open. The default suits an export from PyTorch with `dynamo=True, optimize=False`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Parameters that several nodes read on purpose, by their names in the file.
    pub tied: Vec<String>,
    /// New names of parameters, inputs and outputs by their names in the file.
    pub names: BTreeMap<String, String>,
    /// Float initializers that do not train, by their names in the file.
    pub constants: Vec<String>,
    /// Initializers that train although they look like constants, by their names in the file.
    pub parameters: Vec<String>,
    /// Symbols of sizes that are the batch, besides those of first axes.
    pub batch: Vec<String>,
    /// Symbols of sizes that are the length. Needed if a file has several symbols besides the batch.
    pub length: Vec<String>,
    /// Fixed values of symbols; an axis without a symbol is called `input.axis`, for example `image.2`.
    pub sizes: BTreeMap<String, u32>,
    /// Values of inputs that are a single number, which are removed from the graph.
    pub values: BTreeMap<String, f64>,
    /// Outputs to keep, in this order; empty for all whose first axis is the batch.
    pub outputs: Vec<String>,
    /// What happens to dropout.
    pub dropout: Dropout,
    /// How batch normalizations train. Those with a constant as statistic stay frozen.
    pub batch_norm: BatchNorm,
}
