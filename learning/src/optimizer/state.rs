//! The state of an optimizer between rounds, stored as a safetensors file next to the model version that the step
//! produced.
//!
//! The file names the optimizer in its metadata and stores each variable under the model's tensor names
//! (`first_moment/fc1.weight`), so the state of another optimizer or model cannot be mistaken for it. Equal states give
//! equal bytes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::checkpoint::{self, CheckpointError, Item};
use crate::parameters::Layout;

use task_spec::ServerOptimizer;

/// Metadata key that holds the optimizer's name.
const KIND: &str = "tributary.optimizer";
const VELOCITY: &str = "velocity/";
const FIRST: &str = "first_moment/";
const SECOND: &str = "second_moment/";

/// The state of an optimizer. Each vector is as long as the shared layout.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum OptimizerState {
    /// No state: before the first round, and always for an optimizer without state.
    #[default]
    Empty,
    FedAvgM {
        /// `u`.
        velocity: Vec<f32>,
    },
    FedAdagrad(Moments),
    FedAdam(Moments),
    FedYogi(Moments),
}

/// Two moving averages per parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// `m`, of the means.
    pub first: Vec<f32>,
    /// `v`, of the squared means.
    pub second: Vec<f32>,
}

/// Reasons bytes are rejected as the state for the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The state is missing, or present for an optimizer that has none, or the file is something else.
    #[error("the optimizer's state is missing, or present where none is expected")]
    NoState,
    #[error("this is the state of the optimizer {got:?}, but the task's is {expected:?}")]
    OtherOptimizer { expected: &'static str, got: String },
    /// Truncated, not finite, or of another model.
    #[error("this is not an optimizer's state for this model: {0}")]
    OtherModel(#[from] CheckpointError),
}

impl OptimizerState {
    /// Whether there is nothing to store.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// The name of the optimizer; `None` for an empty state, which fits any.
    #[must_use]
    pub fn optimizer(&self) -> Option<&'static str> {
        match self {
            Self::Empty => None,
            Self::FedAvgM { .. } => Some("fed_avg_m"),
            Self::FedAdagrad(_) => Some("fed_adagrad"),
            Self::FedAdam(_) => Some("fed_adam"),
            Self::FedYogi(_) => Some("fed_yogi"),
        }
    }

    /// The state's variables, each with the name prefix of its tensors.
    fn memories(&self) -> Vec<(&'static str, &[f32])> {
        match self {
            Self::Empty => vec![],
            Self::FedAvgM { velocity } => vec![(VELOCITY, velocity)],
            Self::FedAdagrad(moments) | Self::FedAdam(moments) | Self::FedYogi(moments) => {
                vec![(FIRST, &moments.first), (SECOND, &moments.second)]
            }
        }
    }

    /// Common length of all variables; the error is the length of the first one that differs.
    pub(super) fn len(&self) -> Option<usize> {
        let memories = self.memories();
        let first = memories.first()?.1.len();
        Some(memories.iter().map(|(_, memory)| memory.len()).find(|&len| len != first).unwrap_or(first))
    }

    pub(super) fn into_velocity(self) -> Option<Vec<f32>> {
        if let Self::FedAvgM { velocity } = self { Some(velocity) } else { None }
    }

    pub(super) fn into_moments(self) -> Option<Moments> {
        match self {
            Self::FedAdagrad(moments) | Self::FedAdam(moments) | Self::FedYogi(moments) => Some(moments),
            Self::Empty | Self::FedAvgM { .. } => None,
        }
    }
}

/// Writes a state as safetensors; `None` for an empty one. Equal layouts, optimizers and values give equal bytes.
///
/// # Errors
/// [`CheckpointError::NotFinite`], or [`CheckpointError::Malformed`] if the state and the layout differ in length.
pub fn write(state: &OptimizerState, layout: &Layout) -> Result<Option<Vec<u8>>, CheckpointError> {
    let Some(name) = state.optimizer() else { return Ok(None) };
    let memories = state.memories();
    if let Some((prefix, memory)) = memories.iter().find(|(_, memory)| memory.len() != layout.len()) {
        let (expected, got) = (layout.len(), memory.len());
        return Err(CheckpointError::Malformed(format!("{prefix}* has {got} values where the model has {expected}")));
    }
    let mut items = Vec::with_capacity(memories.len() * layout.tensors().len());
    for (prefix, memory) in memories {
        for (index, tensor) in layout.tensors().iter().enumerate() {
            let name = format!("{prefix}{}", tensor.name);
            items.push(Item { name, shape: &tensor.shape, values: &memory[layout.range(index)] });
        }
    }
    let metadata = HashMap::from([(KIND.to_owned(), name.to_owned())]);
    checkpoint::write_file(Some(metadata), &items).map(Some)
}

/// Reads the state that the optimizer of `spec` stored for a model of this layout.
///
/// # Errors
/// Any [`StateError`]; claimed sizes are checked before anything is allocated.
pub fn read(bytes: &[u8], spec: &ServerOptimizer, layout: &Arc<Layout>) -> Result<OptimizerState, StateError> {
    let file = checkpoint::File::parse(bytes)?;
    let got = file.note(KIND).ok_or(StateError::NoState)?;
    let expected = spec.name();
    if got != expected {
        return Err(StateError::OtherOptimizer { expected, got: got.chars().take(64).collect() });
    }
    let moments = || -> Result<Moments, StateError> {
        let [first, second] = memories(&file, [FIRST, SECOND], layout)?;
        Ok(Moments { first, second })
    };
    match spec {
        ServerOptimizer::FedAvg { .. } => Err(StateError::NoState),
        ServerOptimizer::FedAvgM { .. } => {
            let [velocity] = memories(&file, [VELOCITY], layout)?;
            Ok(OptimizerState::FedAvgM { velocity })
        }
        ServerOptimizer::FedAdagrad { .. } => moments().map(OptimizerState::FedAdagrad),
        ServerOptimizer::FedAdam { .. } => moments().map(OptimizerState::FedAdam),
        ServerOptimizer::FedYogi { .. } => moments().map(OptimizerState::FedYogi),
    }
}

/// Reads these variables of every tensor, and no others.
fn memories<const K: usize>(
    file: &checkpoint::File<'_>,
    prefixes: [&str; K],
    layout: &Layout,
) -> Result<[Vec<f32>; K], CheckpointError> {
    let names = || prefixes.iter().flat_map(|p| layout.tensors().iter().map(move |t| (format!("{p}{}", t.name), t)));
    let mut expected = HashSet::new();
    for (name, tensor) in names() {
        file.expect(&name, &tensor.shape)?;
        expected.insert(name);
    }
    if let Some(extra) = file.names().into_iter().find(|name| !expected.contains(name)) {
        return Err(CheckpointError::Unexpected(extra));
    }
    let mut memories = [(); K].map(|()| vec![0.0; layout.len()]);
    for (prefix, memory) in prefixes.iter().zip(&mut memories) {
        for (index, tensor) in layout.tensors().iter().enumerate() {
            file.fill(&format!("{prefix}{}", tensor.name), &mut memory[layout.range(index)])?;
        }
    }
    Ok(memories)
}
