//! Why a graph has no ONNX file.

use graph::GraphError;

use crate::error::MAX_BYTES;

/// Why a graph has no ONNX file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The graph breaks a rule or a limit.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The number of values of the parameters.
    #[error("the graph has parameters of {expected} values, and {found} were given")]
    Parameters {
        /// What the graph needs.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// Two tensors have a name that is unique in ONNX.
    #[error(
        "the {kind} `{name}` has the name of another tensor; in an ONNX file the names of inputs, parameters and outputs differ: rename it at import"
    )]
    Name {
        /// `parameter` or `output`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A size depends on the length, and no input shows it.
    #[error("a size depends on the length, and no input has an axis of that size")]
    Length,
    /// The file is larger than a message of Protocol Buffers.
    #[error("the file would have {0} bytes; at most {max} are allowed", max = MAX_BYTES)]
    TooLarge(usize),
}
