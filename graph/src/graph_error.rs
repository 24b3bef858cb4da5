//! Why a graph is rejected.

/// Why a graph is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// The bytes are no graph of this format.
    #[error("no graph: {0}")]
    Format(String),
    /// The graph as a whole exceeds a limit or contradicts itself.
    #[error("{0}")]
    Graph(String),
    /// An input, parameter, constant or output is wrong.
    #[error("{kind} `{name}`: {detail}")]
    Tensor {
        /// `input`, `parameter`, `constant` or `output`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What is wrong, and what would be right.
        detail: String,
    },
    /// A node is wrong.
    #[error("node {number} ({operation}{}{name}): {detail}", if name.is_empty() { "" } else { ", " })]
    Node {
        /// Its position, from 0.
        number: usize,
        /// Name of its operation, as in JSON.
        operation: &'static str,
        /// Its name; may be empty.
        name: String,
        /// What is wrong, and what would be right.
        detail: String,
    },
}
