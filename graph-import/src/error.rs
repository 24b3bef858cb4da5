//! Why a file is rejected, and what an operator should look at.

use std::fmt;

/// Most bytes of a file: what one message of protobuf can have.
pub const MAX_BYTES: usize = (1 << 31) - 1;

/// A node of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its position among the nodes that are visited, from 0; nodes of functions count at each call.
    pub number: usize,
    /// Its name; may be empty.
    pub name: String,
    /// Its operator, with the domain unless that is ONNX's own.
    pub operator: String,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "node {} `{}` ({})", self.number, self.name, self.operator)
    }
}

/// Why a file cannot be imported.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ImportError {
    /// The bytes are no ONNX model.
    #[error("the file is no ONNX model: {0}")]
    Decode(String),
    /// The file is larger than a model may be.
    #[error("the file has {0} bytes; at most {max} are read", max = MAX_BYTES)]
    TooLarge(usize),
    /// The file as a whole cannot be used.
    #[error("{0}")]
    Model(String),
    /// An initializer cannot be used.
    #[error("initializer `{name}`: {why}")]
    Initializer {
        /// Its name.
        name: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// An input of the graph cannot be used.
    #[error("input `{name}`: {why}")]
    Input {
        /// Its name.
        name: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// An output of the graph cannot be used.
    #[error("output `{name}`: {why}")]
    Output {
        /// Its name.
        name: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A node cannot be trained, or its arguments are wrong.
    #[error("{place}: {why}")]
    Node {
        /// Which node.
        place: Place,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// Several nodes read a parameter, as happens when an exporter merges parameters that are equal.
    #[error(
        "parameter `{name}` is read by {} nodes ({}): exporters merge parameters that are equal. Export with \
         `dynamo=True, optimize=False`, or list it as tied if these layers share it",
        readers.len(),
        readers.join(", ")
    )]
    Merged {
        /// The parameter.
        name: String,
        /// The nodes.
        readers: Vec<String>,
    },
}

/// Something that an operator should look at before training.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// The exporter made a convolution of a convolution and a batch normalization.
    #[error(
        "{place}: bias `{bias}` was made by folding a batch normalization into the convolution; export with \
         `dynamo=True, optimize=False` to train both"
    )]
    FoldedBatchNorm {
        /// The convolution.
        place: Place,
        /// Its bias.
        bias: String,
    },
    /// The exporter invented the parameter's name, which differs between versions of PyTorch.
    #[error("parameter `{0}` has a name that the exporter invented; rename it if clients personalize by name")]
    InventedName(String),
    /// An initializer was converted to 32-bit floats.
    #[error("initializer `{name}` was converted from {from} to 32-bit floats")]
    Converted {
        /// The initializer.
        name: String,
        /// Its type in the file.
        from: &'static str,
    },
    /// A batch normalization uses the statistics of the batch in the file; here it uses its running statistics.
    #[error("{0}: batch statistics are replaced by the running statistics, which do not change in training")]
    FrozenBatchNorm(Place),
    /// A dropout was left out.
    #[error("{0}: the dropout was left out")]
    DropoutRemoved(Place),
    /// An output was left out, because its first axis is not the batch.
    #[error("output `{0}` was left out: its first axis is not the batch")]
    DroppedOutput(String),
    /// No output depends on an initializer.
    #[error("no output depends on initializer `{0}`; it was left out")]
    Unused(String),
    /// An input has a batch of exactly 1 in the file.
    #[error("input `{0}` has a fixed batch of 1 in the file; it was made variable")]
    FixedBatch(String),
    /// Two parameters have the same elements, perhaps because an exporter untied them.
    #[error("parameters `{0}` and `{1}` have equal elements but train separately; were they tied?")]
    Equal(String, String),
}
