//! The state of an optimizer between rounds, stored as a safetensors file next to the model version that the step
//! produced.
//!
//! The file names the optimizer in its metadata and stores each variable under the model's tensor names
//! (`first_moment/fc1.weight`), so the state of another optimizer or model cannot be mistaken for it. Equal states give
//! equal bytes.

use std::collections::{HashMap, HashSet};

use crate::checkpoint::{self, CheckpointError, Item};
use crate::parameters::Layout;

/// Metadata key that holds the optimizer's name.
const KIND: &str = "tributary.optimizer";

/// The state of an optimizer.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum OptimizerState {
    /// No state: before the first round, and always for an optimizer without state.
    #[default]
    Empty,
    Kept(Kept),
}

/// What an optimizer keeps for each parameter between rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    optimizer: &'static str,
    /// Each as long as the shared layout, under its name in the file.
    vectors: Vec<(&'static str, Vec<f32>)>,
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
            Self::Kept(kept) => Some(kept.optimizer),
        }
    }

    /// One of the vectors, by its name in the file: `velocity`, `first_moment` or `second_moment`.
    #[must_use]
    pub fn vector(&self, name: &str) -> Option<&[f32]> {
        self.vectors().iter().find(|(known, _)| *known == name).map(|(_, vector)| vector.as_slice())
    }

    fn vectors(&self) -> &[(&'static str, Vec<f32>)] {
        match self {
            Self::Empty => &[],
            Self::Kept(kept) => &kept.vectors,
        }
    }

    /// Common length of all vectors; the error is the length of the first one that differs.
    pub(super) fn len(&self) -> Option<usize> {
        let vectors = self.vectors();
        let first = vectors.first()?.1.len();
        Some(vectors.iter().map(|(_, vector)| vector.len()).find(|&len| len != first).unwrap_or(first))
    }

    /// The vectors, or those before the first round.
    pub(super) fn or<const K: usize>(self, start: impl FnOnce() -> [Vec<f32>; K]) -> [Vec<f32>; K] {
        let vectors: Vec<_> = match self {
            Self::Empty => vec![],
            Self::Kept(kept) => kept.vectors.into_iter().map(|(_, vector)| vector).collect(),
        };
        vectors.try_into().unwrap_or_else(|_| start())
    }

    /// What the optimizer of this name keeps under these names.
    pub(super) fn kept<const K: usize>(
        optimizer: &'static str,
        names: &[&'static str],
        vectors: [Vec<f32>; K],
    ) -> Self {
        Self::Kept(Kept { optimizer, vectors: names.iter().copied().zip(vectors).collect() })
    }
}

/// Writes a state as safetensors; `None` for an empty one. Equal layouts, optimizers and values give equal bytes.
///
/// # Errors
/// [`CheckpointError::NotFinite`], or [`CheckpointError::Malformed`] if the state and the layout differ in length.
pub fn write(state: &OptimizerState, layout: &Layout) -> Result<Option<Vec<u8>>, CheckpointError> {
    let OptimizerState::Kept(Kept { optimizer, vectors }) = state else { return Ok(None) };
    if let Some((name, vector)) = vectors.iter().find(|(_, vector)| vector.len() != layout.len()) {
        let (expected, got) = (layout.len(), vector.len());
        return Err(CheckpointError::Malformed(format!("{name}/* has {got} values where the model has {expected}")));
    }
    let mut items = Vec::with_capacity(vectors.len() * layout.tensors().len());
    for (name, vector) in vectors {
        for (index, tensor) in layout.tensors().iter().enumerate() {
            let name = format!("{name}/{}", tensor.name);
            items.push(Item { name, shape: &tensor.shape, values: &vector[layout.range(index)] });
        }
    }
    let metadata = HashMap::from([(KIND.to_owned(), (*optimizer).to_owned())]);
    checkpoint::write_file(Some(metadata), &items).map(Some)
}

/// Reads the vectors of these names, and no others, that the optimizer of this name stored for a model of this layout.
///
/// # Errors
/// Any [`StateError`]; claimed sizes are checked before anything is allocated.
pub(super) fn read(
    bytes: &[u8],
    optimizer: &'static str,
    names: &[&'static str],
    layout: &Layout,
) -> Result<OptimizerState, StateError> {
    let file = checkpoint::File::parse(bytes)?;
    let got = file.note(KIND).ok_or(StateError::NoState)?;
    if got != optimizer {
        return Err(StateError::OtherOptimizer { expected: optimizer, got: got.chars().take(64).collect() });
    }
    if names.is_empty() {
        return Err(StateError::NoState);
    }
    let mut expected = HashSet::new();
    for (name, tensor) in names.iter().flat_map(|name| layout.tensors().iter().map(move |tensor| (name, tensor))) {
        let name = format!("{name}/{}", tensor.name);
        file.expect(&name, &tensor.shape)?;
        expected.insert(name);
    }
    if let Some(extra) = file.names().into_iter().find(|name| !expected.contains(name)) {
        return Err(CheckpointError::Unexpected(extra).into());
    }
    let mut vectors = Vec::with_capacity(names.len());
    for &name in names {
        let mut vector = vec![0.0; layout.len()];
        for (index, tensor) in layout.tensors().iter().enumerate() {
            file.fill(&format!("{name}/{}", tensor.name), &mut vector[layout.range(index)])?;
        }
        vectors.push((name, vector));
    }
    Ok(OptimizerState::Kept(Kept { optimizer, vectors }))
}
