//! From the server optimizer that a task names to the one that `learning` steps with, and its state to and from a blob.

use std::sync::Arc;

use bytes::Bytes;
use federation::task::ServerOptimizer;
use learning::optimizer::{OptimizerSpec, OptimizerState, state};
use learning::{Layout, StateError};

pub(crate) fn spec(named: ServerOptimizer) -> OptimizerSpec {
    match named {
        ServerOptimizer::FedAvg { learning_rate } => OptimizerSpec::FedAvg { learning_rate },
        ServerOptimizer::FedAvgM { learning_rate, momentum } => OptimizerSpec::FedAvgM { learning_rate, momentum },
        ServerOptimizer::FedAdagrad { learning_rate, beta1, tau } => {
            OptimizerSpec::FedAdagrad { learning_rate, beta1, tau }
        }
        ServerOptimizer::FedAdam { learning_rate, beta1, beta2, tau } => {
            OptimizerSpec::FedAdam { learning_rate, beta1, beta2, tau }
        }
        ServerOptimizer::FedYogi { learning_rate, beta1, beta2, tau } => {
            OptimizerSpec::FedYogi { learning_rate, beta1, beta2, tau }
        }
    }
}

/// The state to go on from; `kept` is what is stored beside version `version` of a model of this layout.
///
/// # Errors
/// What is wrong with it: a version that a step made has the state of that step, and no other.
pub(crate) fn resume(
    spec: &OptimizerSpec,
    layout: &Arc<Layout>,
    version: u32,
    kept: Option<&Bytes>,
) -> Result<OptimizerState, StateError> {
    match kept {
        Some(bytes) => state::read(bytes, spec, layout),
        None if version == 0 || !spec.remembers() => Ok(OptimizerState::Empty),
        None => Err(StateError::NoState),
    }
}
