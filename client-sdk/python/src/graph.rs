//! Models as graphs: their import from ONNX, their outputs and gradients.

use std::collections::BTreeMap;
use std::sync::Arc;

use client_sdk::models::{Architecture, GraphModel, Loss};
use client_sdk::train::{Derivative, GradientCheck, GraphInputs, GraphPredictor, Verified, graph_gradient, verified};
use client_sdk::{Layout, Parameters};
use graph_import::{BatchNorm, Dropout, Imported, Options, Tensor, import};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use serde_json::json;

use crate::errors::{ModelError, UpdateError};
use crate::examples::GivenColumn;

/// Elements and shape of an output.
pub(crate) type GivenOutput<'py> = (Bound<'py, PyArray1<f32>>, Vec<usize>);

/// Name, shape and elements of a parameter.
type Initial<'py> = (String, Vec<u32>, Bound<'py, PyArray1<f32>>);

/// What `Options` of an import can be, as keywords of Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Choices {
    tied: Vec<String>,
    names: BTreeMap<String, String>,
    constants: Vec<String>,
    parameters: Vec<String>,
    batch: Vec<String>,
    length: Vec<String>,
    sizes: BTreeMap<String, u32>,
    values: BTreeMap<String, f64>,
    outputs: Vec<String>,
    dropout: bool,
    /// Whether batch normalizations train by the statistics of the batch.
    batch_statistics: bool,
}

impl From<Choices> for Options {
    fn from(choices: Choices) -> Self {
        Self {
            tied: choices.tied,
            names: choices.names,
            constants: choices.constants,
            parameters: choices.parameters,
            batch: choices.batch,
            length: choices.length,
            sizes: choices.sizes,
            values: choices.values,
            outputs: choices.outputs,
            dropout: if choices.dropout { Dropout::Keep } else { Dropout::Drop },
            batch_norm: if choices.batch_statistics { BatchNorm::Batch } else { BatchNorm::Frozen },
        }
    }
}

/// Imports an ONNX file as a graph that trains with `loss`, which is JSON. Returns the graph as JSON, its parameters, and a report as
/// JSON. With `check`, gradients are compared with finite differences.
#[pyfunction]
pub(crate) fn import_graph<'py>(
    py: Python<'py>,
    onnx: PyBackedBytes,
    loss: &str,
    choices: Choices,
    check: bool,
) -> PyResult<(String, Vec<Initial<'py>>, String)> {
    let loss: Loss = serde_json::from_str(loss).map_err(|error| refused(format!("the loss: {error}")))?;
    let check = if check { GradientCheck::Differences } else { GradientCheck::Elsewhere };
    let options = Options::from(choices);
    let (found, parameters) = py.detach(|| imported(&onnx, &options, loss, check)).map_err(refused)?;
    let Verified { json, operations, derivatives, warnings, model: _ } = found;
    let gradients: Vec<_> = derivatives.iter().map(reported).collect();
    let report = json!({ "operations": operations, "gradients": gradients, "warnings": warnings });
    let json = String::from_utf8(json).map_err(|error| refused(error.to_string()))?;
    let initial = |tensor: Tensor| (tensor.name, tensor.shape, PyArray1::from_vec(py, tensor.values));
    Ok((json, parameters.into_iter().map(initial).collect(), report.to_string()))
}

/// The checked graph with its parameters, and warnings of the import before those of the check.
fn imported(
    onnx: &[u8],
    options: &Options,
    loss: Loss,
    check: GradientCheck<'_>,
) -> Result<(Verified, Vec<Tensor>), String> {
    let Imported { graph, parameters, warnings } = import(onnx, options).map_err(|error| error.to_string())?;
    let values: Vec<f32> = parameters.iter().flat_map(|tensor| &tensor.values).copied().collect();
    let model = GraphModel::new(graph, loss).map_err(|error| error.to_string())?;
    let mut found = verified(Arc::new(model), &values, check)?;
    found.warnings = warnings.iter().map(ToString::to_string).chain(found.warnings).collect();
    Ok((found, parameters))
}

fn reported(derivative: &Derivative) -> serde_json::Value {
    let Derivative { parameter, shape, computed, difference } = derivative;
    json!({ "name": parameter, "shape": shape, "gradient": computed, "difference": difference })
}

/// A graph with its loss: `tributary.GraphModel` and `tributary.Model` compute with it.
#[pyclass(frozen, module = "tributary._tributary")]
pub(crate) struct Graph(Arc<GraphModel>);

impl Graph {
    /// Tensors of the graph's parameters.
    fn layout(&self) -> PyResult<Layout> {
        Architecture::Graph(Arc::clone(&self.0)).layout().map_err(|error| refused(error.to_string()))
    }

    /// Whether a model has the graph's parameters.
    pub(crate) fn fits(&self, layout: &Layout) -> PyResult<()> {
        if self.layout()? == *layout {
            Ok(())
        } else {
            Err(refused("the model has other tensors than its graph".to_owned()))
        }
    }

    /// The first output for its inputs.
    pub(crate) fn computed<'py>(
        &self,
        py: Python<'py>,
        parameters: Parameters,
        inputs: &[GivenColumn<'_>],
        count: usize,
        length: usize,
    ) -> PyResult<GivenOutput<'py>> {
        let columns = inputs.iter().map(GivenColumn::column).collect::<PyResult<Vec<_>>>()?;
        let inputs = GraphInputs { columns: &columns, count, length };
        let compute = || GraphPredictor::new(Arc::clone(&self.0), Arc::new(parameters))?.first_output(inputs);
        let output = py.detach(compute).map_err(|error| UpdateError::new_err(error.to_string()))?;
        Ok((PyArray1::from_vec(py, output.values), output.shape))
    }
}

#[pymethods]
impl Graph {
    /// The graph of a task's architecture, as JSON.
    #[new]
    fn new(architecture: &str) -> PyResult<Self> {
        match serde_json::from_str(architecture).map_err(|error| refused(error.to_string()))? {
            Architecture::Graph(model) => Ok(Self(model)),
            other => Err(refused(format!("the model is `{}`, and no graph", other.kind()))),
        }
    }

    /// The first output for flat parameters and inputs, in the graph's order: elements and shape. No other thread may write to them
    /// meanwhile.
    fn output<'py>(
        &self,
        py: Python<'py>,
        parameters: PyReadonlyArray1<'_, f32>,
        inputs: Vec<GivenColumn<'_>>,
        count: usize,
        length: usize,
    ) -> PyResult<GivenOutput<'py>> {
        let parameters = Parameters::new(Arc::new(self.layout()?), flat(&parameters)?.to_vec());
        let parameters = parameters.map_err(|error| UpdateError::new_err(error.to_string()))?;
        self.computed(py, parameters, &inputs, count, length)
    }

    /// The gradient of the sum of the first output times `weights`, flat; as [`Self::output`].
    fn gradient<'py>(
        &self,
        py: Python<'py>,
        parameters: PyReadonlyArray1<'_, f32>,
        inputs: Vec<GivenColumn<'_>>,
        count: usize,
        length: usize,
        weights: PyReadonlyArray1<'_, f32>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let columns = inputs.iter().map(GivenColumn::column).collect::<PyResult<Vec<_>>>()?;
        let inputs = GraphInputs { columns: &columns, count, length };
        let (parameters, weights) = (flat(&parameters)?, flat(&weights)?);
        let gradient = py.detach(|| graph_gradient(&self.0, parameters, inputs, weights));
        gradient
            .map(|gradient| PyArray1::from_vec(py, gradient))
            .map_err(|error| UpdateError::new_err(error.to_string()))
    }
}

fn flat<'a>(array: &'a PyReadonlyArray1<'_, f32>) -> PyResult<&'a [f32]> {
    array.as_slice().map_err(|_| UpdateError::new_err("the array is not contiguous"))
}

fn refused(why: String) -> PyErr {
    ModelError::new_err(why)
}
