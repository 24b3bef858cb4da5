//! Reasons why a node has no result.

use graph::Node;

use crate::train::error::TrainError;
use crate::train::graph::executor::wrong;

/// Why a node cannot compute.
#[derive(Debug)]
pub(super) enum Failure {
    /// The values that it got are wrong.
    Values(String),
    /// candle cannot compute it on the device.
    Device(candle_core::Error),
}

impl Failure {
    /// The error of a training, which names the node.
    pub(super) fn of_node(self, node: &Node, number: usize) -> TrainError {
        match self {
            Self::Values(detail) => TrainError::Execution(wrong(node, number, detail).to_string()),
            Self::Device(error) => {
                TrainError::Backend(error.context(wrong(node, number, "candle cannot compute it".to_owned())))
            }
        }
    }
}

impl From<candle_core::Error> for Failure {
    fn from(error: candle_core::Error) -> Self {
        Self::Device(error)
    }
}

/// The error of inputs that shape inference excludes.
pub(super) fn missing() -> candle_core::Error {
    candle_core::Error::msg("the inputs are of other types, or too few")
}
