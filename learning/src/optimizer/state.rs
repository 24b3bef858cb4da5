//! The state of an optimizer between rounds, stored as a safetensors file next to the step's model version.
//!
//! The file names the optimizer in its metadata and stores each variable under the model's tensor names (`first_moment/fc1.weight`), so the
//! state of another optimizer or model cannot be mistaken for it. Equal states give equal bytes.

use std::io::{self, Read, Seek, SeekFrom, Write};

use crate::checkpoint::{CheckpointError, File, TensorFile, read_header};
use crate::parameters::Layout;

/// Metadata key of the optimizer's name.
const KIND: &str = "tributary.optimizer";

/// The state of an optimizer.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum OptimizerState {
    /// Empty: before the first round, and always for a stateless optimizer.
    #[default]
    Empty,
    Variables(OptimizerVariables),
}

/// An optimizer's variables for each parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimizerVariables {
    optimizer: &'static str,
    /// Each as long as the shared layout, or as a slice of it, under its name in the file.
    vectors: Vec<(&'static str, Vec<f32>)>,
}

/// Reasons bytes are rejected as the state for the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The state is missing, or present for a stateless optimizer, or the file has other contents.
    #[error("the optimizer's state is missing, or present where none is expected")]
    NoState,
    #[error("this is the state of the optimizer {got:?}, but the task's is {expected:?}")]
    OtherOptimizer { expected: &'static str, got: String },
    /// Truncated, not finite, or of another model.
    #[error("this is not an optimizer's state for this model: {0}")]
    OtherModel(#[from] CheckpointError),
}

impl OptimizerState {
    /// Whether the state is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// The name of the optimizer; `None` for an empty state, which fits any.
    #[must_use]
    pub fn optimizer(&self) -> Option<&'static str> {
        match self {
            Self::Empty => None,
            Self::Variables(kept) => Some(kept.optimizer),
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
            Self::Variables(kept) => &kept.vectors,
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
            Self::Variables(kept) => kept.vectors.into_iter().map(|(_, vector)| vector).collect(),
        };
        vectors.try_into().unwrap_or_else(|_| start())
    }

    /// The variables of this optimizer under these names.
    pub(super) fn kept<const K: usize>(
        optimizer: &'static str,
        names: &[&'static str],
        vectors: [Vec<f32>; K],
    ) -> Self {
        Self::Variables(OptimizerVariables { optimizer, vectors: names.iter().copied().zip(vectors).collect() })
    }
}

/// The file of an optimizer's state for a model: each vector in the order of the step, over all tensors. Read and written in
/// slices of the model's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFile {
    file: TensorFile,
    optimizer: &'static str,
    names: Vec<&'static str>,
    /// Values of one vector.
    each: usize,
}

impl StateFile {
    /// The file for the variables of this optimizer under these names.
    pub(super) fn new(
        optimizer: &'static str,
        names: Vec<&'static str>,
        layout: &Layout,
    ) -> Result<Self, CheckpointError> {
        let tensors = names.iter().flat_map(|name| {
            layout.tensors().iter().map(move |tensor| (format!("{name}/{}", tensor.name), tensor.shape.clone()))
        });
        let file = TensorFile::new(Some((KIND, optimizer)), tensors.collect())?;
        Ok(Self { file, optimizer, names, each: layout.len() })
    }

    /// Number of vectors; 0 for a stateless optimizer, which has no file.
    #[must_use]
    pub fn vectors(&self) -> usize {
        self.names.len()
    }

    /// The start of the file; the vectors follow.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        self.file.header()
    }

    /// Size of the whole file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// Checks the file before slices of it are read.
    ///
    /// # Errors
    /// Errors of the file; within, any [`StateError`].
    pub fn open(&self, file: &mut (impl Read + Seek + ?Sized)) -> io::Result<Result<(), StateError>> {
        file.seek(SeekFrom::Start(0))?;
        let header = match read_header(file)? {
            Ok(header) => header,
            Err(error) => return Ok(Err(error.into())),
        };
        if self.names.is_empty() || header != self.file.header()[8..] {
            return Ok(Err(self.why_not(&header)));
        }
        Ok(self.file.check_size(file)?.map_err(StateError::from))
    }

    /// The state of `length` values of the model from the `start`-th on.
    ///
    /// # Errors
    /// Of the file; within, [`StateError::OtherModel`].
    pub fn read(
        &self,
        file: &mut (impl Read + Seek + ?Sized),
        start: usize,
        length: usize,
    ) -> io::Result<Result<OptimizerState, StateError>> {
        let mut vectors = Vec::with_capacity(self.names.len());
        for (&name, before) in self.names.iter().zip((0..).step_by(self.each)) {
            let mut vector = vec![0.0; length];
            file.seek(SeekFrom::Start(self.file.place_of(before + start)))?;
            if let Err(error) = self.file.read_values(file, before + start, &mut vector)? {
                return Ok(Err(error.into()));
            }
            vectors.push((name, vector));
        }
        Ok(Ok(OptimizerState::Variables(OptimizerVariables { optimizer: self.optimizer, vectors })))
    }

    /// Writes one vector of a state of the model's values from the `start`-th on. In the file, the vectors are consecutive.
    ///
    /// # Errors
    /// Errors of the file; within, [`CheckpointError::NotFinite`], or [`CheckpointError::Malformed`] if the state lacks the vector.
    pub fn write(
        &self,
        file: &mut (impl Write + ?Sized),
        vector: usize,
        start: usize,
        state: &OptimizerState,
    ) -> io::Result<Result<(), CheckpointError>> {
        let Some((_, values)) = state.vectors().get(vector).filter(|_| vector < self.names.len()) else {
            return Ok(Err(CheckpointError::Malformed(format!("the state has no vector {vector}"))));
        };
        self.file.write_values(file, vector * self.each + start, values)
    }

    /// Why a header is not the one of this state.
    fn why_not(&self, header: &[u8]) -> StateError {
        let file = match File::of_header(header) {
            Ok(file) => file,
            Err(error) => return error.into(),
        };
        let Some(got) = file.note(KIND) else { return StateError::NoState };
        if got != self.optimizer {
            return StateError::OtherOptimizer { expected: self.optimizer, got: got.chars().take(64).collect() };
        }
        if self.names.is_empty() {
            return StateError::NoState;
        }
        let tensors = self.file.tensors();
        if let Some(error) = tensors.iter().find_map(|(name, shape)| file.expect(name, shape).err()) {
            return error.into();
        }
        let extra = file.names().into_iter().find(|name| tensors.iter().all(|(ours, _)| ours != name));
        extra.map_or(CheckpointError::OtherForm, CheckpointError::Unexpected).into()
    }
}

/// Writes a state as safetensors; `None` for an empty one. Equal layouts, optimizers and values give equal bytes.
///
/// # Errors
/// [`CheckpointError::NotFinite`], or [`CheckpointError::Malformed`] if the state and the layout differ in length.
pub fn write(state: &OptimizerState, layout: &Layout) -> Result<Option<Vec<u8>>, CheckpointError> {
    let OptimizerState::Variables(OptimizerVariables { optimizer, vectors }) = state else { return Ok(None) };
    if let Some((name, vector)) = vectors.iter().find(|(_, vector)| vector.len() != layout.len()) {
        let (expected, got) = (layout.len(), vector.len());
        return Err(CheckpointError::Malformed(format!("{name}/* has {got} values where the model has {expected}")));
    }
    let file = StateFile::new(optimizer, vectors.iter().map(|(name, _)| *name).collect(), layout)?;
    file.file.with_values(vectors.iter().map(|(_, vector)| vector.as_slice())).map(Some)
}
