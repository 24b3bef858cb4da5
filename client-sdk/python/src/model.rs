//! A model that the app uses.

use std::path::PathBuf;

use client_sdk::journal::JournalFiles;
use client_sdk::train::Inputs;
use client_sdk::{Model as Kept, Origin};
use numpy::{PyArray1, PyArray2, PyArrayMethods as _, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::errors::{Error, JournalError, UpdateError};
use crate::examples::GivenColumn;
use crate::graph::{GivenOutput, Graph};

/// A model in the journal: `tributary.Model` wraps it.
#[pyclass(frozen, module = "tributary._tributary")]
pub(crate) struct Model(Kept);

impl Model {
    pub(crate) fn new(model: Kept) -> Self {
        Self(model)
    }
}

#[pymethods]
impl Model {
    /// The model of a task in a journal that no participant uses.
    #[staticmethod]
    fn load(
        py: Python<'_>,
        task: &str,
        journal: PathBuf,
        key: Option<PathBuf>,
        generation: Option<PathBuf>,
    ) -> PyResult<Option<Self>> {
        let beside = JournalFiles::beside(&journal);
        let files = JournalFiles {
            key: key.unwrap_or(beside.key),
            generation: generation.unwrap_or(beside.generation),
            folder: beside.folder,
        };
        let found = py.detach(|| files.open().and_then(|journal| Kept::load_of(&journal, task)));
        found.map(|found| found.map(Self)).map_err(|error| JournalError::new_err(error.to_string()))
    }

    /// Version and digest of a published model; round of a personalized one.
    #[getter]
    fn origin(&self) -> (Option<u32>, Option<String>, Option<u32>) {
        match self.0.origin() {
            Origin::Published { version, sha256 } => (Some(version), Some(sha256.to_string()), None),
            Origin::Personalized { round } => (None, None, Some(round)),
        }
    }

    /// Names, values and numbers of examples of what was measured.
    #[getter]
    fn metrics(&self) -> Vec<(String, f64, u64)> {
        self.0.metrics().iter().map(|(name, metric)| (name.clone(), metric.value, metric.count)).collect()
    }

    /// The task's description of its model as JSON, if it has one.
    #[getter]
    fn architecture(&self) -> Option<String> {
        self.0.architecture().map(ToString::to_string)
    }

    /// Names and shapes, in the order of the flat vector.
    #[getter]
    fn tensors(&self) -> Vec<(String, Vec<u64>)> {
        let tensors = self.0.parameters().layout().tensors();
        tensors.iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect()
    }

    /// The model as one flat array that Python owns.
    fn values<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        PyArray1::from_slice(py, self.0.parameters().values())
    }

    /// The first output of a graph for its inputs, in the graph's order: elements and shape. No other thread may write to them meanwhile.
    fn output<'py>(
        &self,
        py: Python<'py>,
        graph: &Graph,
        inputs: Vec<GivenColumn<'py>>,
        count: usize,
        length: usize,
    ) -> PyResult<GivenOutput<'py>> {
        let parameters = self.0.parameters();
        graph.fits(parameters.layout())?;
        graph.computed(py, parameters.clone(), &inputs, count, length)
    }

    /// The scores of each class for each row, before softmax; of the SDK's own models. No other thread may write to `rows` meanwhile:
    /// `tributary.Model` gives a copy of its own.
    fn scores<'py>(&self, py: Python<'py>, rows: PyReadonlyArray2<'py, f32>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let rows = rows.as_slice().map_err(|_| UpdateError::new_err("the array is not contiguous"))?;
        let scores = py.detach(|| self.0.scores(Inputs::Rows(rows)));
        let scores = scores.map_err(|error| Error::new_err(error.to_string()))?;
        let shape = [scores.rows().len(), scores.classes()];
        PyArray1::from_slice(py, scores.values()).reshape(shape)
    }
}
