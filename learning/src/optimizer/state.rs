//! What an optimizer remembers from one round to the next, and how it is kept: a safetensors file beside the model version
//! that the step made.
//!
//! The file names the optimizer in its metadata and holds each memory under the model's own tensor names
//! (`first_moment/fc1.weight`), so neither another optimizer's nor another model's state can be taken for it. The same state
//! always gives the same bytes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::checkpoint::{self, CheckpointError, Item};
use crate::parameters::Layout;

use task_spec::ServerOptimizer;

/// The entry of the metadata that names the optimizer.
const KIND: &str = "tributary.optimizer";
const VELOCITY: &str = "velocity/";
const FIRST: &str = "first_moment/";
const SECOND: &str = "second_moment/";

/// What an optimizer remembers from one round to the next. Each vector is as long as the shared layout.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum OptimizerState {
    /// Nothing: the first round of any optimizer, and every round of one without memory.
    #[default]
    Empty,
    /// Of FedAvgM.
    FedAvgM {
        /// `u`.
        velocity: Vec<f32>,
    },
    /// Of FedAdagrad.
    FedAdagrad(Moments),
    /// Of FedAdam.
    FedAdam(Moments),
    /// Of FedYogi.
    FedYogi(Moments),
}

/// Two averages over the rounds, one each per parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// `m`, of the means.
    pub first: Vec<f32>,
    /// `v`, of their squares.
    pub second: Vec<f32>,
}

/// Why bytes are not the state that a step goes on from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Nothing where an optimizer has a memory, a file of something else, or a state for an optimizer without memory.
    #[error("there is no optimizer's state where one belongs, or one where none does")]
    NoState,
    /// Another optimizer's.
    #[error("this is the state of the optimizer {got:?}, but the task's is {expected:?}")]
    OtherOptimizer {
        /// The task's.
        expected: &'static str,
        /// The file's, shortened.
        got: String,
    },
    /// Not whole, not numbers, or another model's.
    #[error("this is no state of an optimizer of this model: {0}")]
    OtherModel(#[from] CheckpointError),
}

impl OptimizerState {
    /// Whether there is nothing to keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// The optimizer it belongs to; an empty state belongs to any.
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

    /// Its memories, each with the prefix of its tensors.
    fn memories(&self) -> Vec<(&'static str, &[f32])> {
        match self {
            Self::Empty => vec![],
            Self::FedAvgM { velocity } => vec![(VELOCITY, velocity)],
            Self::FedAdagrad(moments) | Self::FedAdam(moments) | Self::FedYogi(moments) => {
                vec![(FIRST, &moments.first), (SECOND, &moments.second)]
            }
        }
    }

    /// Parameters it remembers something of; the first memory of another length than the others', if there is one.
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

/// Writes a state as safetensors; byte for byte a function of layout, optimizer and values. Nothing for an empty one.
///
/// # Errors
/// [`CheckpointError::NotFinite`], or [`CheckpointError::Malformed`] if the state is of another length than the layout.
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

/// Reads the state that the optimizer `spec` left for a model of this layout.
///
/// # Errors
/// Any [`StateError`]; nothing in proportion to a claimed size is allocated before it is checked.
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

/// These memories of every tensor, and no others.
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
