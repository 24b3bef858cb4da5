//! Predictions of a graph, with its inputs and outputs by name.

use std::sync::Arc;

use graph::{Element, Graph, GraphModel, Point};
use learning::Parameters;

use super::executor::Executor;
use super::named::{KIND, described, in_order};
use super::tensor::Tensor;
use crate::models::Architecture;
use crate::train::error::TrainError;

/// An input or output of a prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// Its name in the graph.
    pub name: String,
    /// Its sizes, outermost first; the first is the number of examples.
    pub shape: Vec<usize>,
    /// Its elements in row-major order, as many as the product of the sizes.
    pub values: Tensor,
}

/// A graph with its parameters that one thread computes repeatedly, without dropout, on one core. It keeps the memory of the
/// last batch size and length for the next prediction.
pub struct GraphPredictor {
    model: Arc<GraphModel>,
    parameters: Arc<Parameters>,
    executor: Executor,
    /// The batch and length that the memory is for.
    prepared: Option<Point>,
}

impl GraphPredictor {
    /// A predictor of a graph with these parameters.
    ///
    /// # Errors
    /// [`TrainError::OtherModel`] for parameters of another model.
    pub fn new(model: Arc<GraphModel>, parameters: Arc<Parameters>) -> Result<Self, TrainError> {
        if Architecture::Graph(Arc::clone(&model)).layout()? != **parameters.layout() {
            return Err(TrainError::OtherModel { kind: KIND });
        }
        let executor = Executor::new(Arc::clone(&model));
        Ok(Self { model, parameters, executor, prepared: None })
    }

    /// All outputs of the graph, in its order, for inputs in any order.
    ///
    /// # Errors
    /// [`TrainError::Inputs`] names an input that is missing, unknown, or of a wrong type or size; otherwise as
    /// [`Self::compute`].
    pub fn predict(&mut self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>, TrainError> {
        let (ordered, point) = ordered(self.model.graph(), inputs)?;
        let values: Vec<&Tensor> = ordered.iter().map(|given| &given.values).collect();
        let outputs = self.compute(&values, point)?;
        let shapes = self.executor.prepare(point).map_err(TrainError::Graph)?;
        let named = self.model.graph().outputs.iter().zip(outputs).map(|(output, values)| NamedTensor {
            name: output.name.clone(),
            shape: shapes.get(output.value).shape.clone(),
            values,
        });
        Ok(named.collect())
    }

    /// All outputs of the graph, in its order, for the elements of its inputs, in its order.
    ///
    /// # Errors
    /// [`TrainError::Graph`] for a batch and length that the graph does not compute, before memory is allocated;
    /// [`TrainError::Inputs`] for a wrong type or number of elements; [`TrainError::Prediction`] names the node that
    /// cannot compute, for example an integer outside a table of embeddings.
    pub fn compute(&mut self, inputs: &[&Tensor], point: Point) -> Result<Vec<Tensor>, TrainError> {
        let is_new = self.prepared != Some(point);
        self.prepared = None;
        let shapes = self.executor.prepare(point).map_err(TrainError::Graph)?;
        let graph = self.model.graph();
        if inputs.len() != graph.inputs.len() {
            let what = format!("{} inputs, not {}", graph.inputs.len(), inputs.len());
            return Err(TrainError::Inputs { kind: KIND, what });
        }
        for (position, (input, given)) in graph.inputs.iter().zip(inputs).enumerate() {
            let expected = shapes.get(graph.input(position));
            check(&input.name, (expected.element, expected.elements()), given)?;
        }
        if is_new {
            self.executor.set_parameters(self.parameters.values());
        }
        for (position, given) in inputs.iter().enumerate() {
            if let Some(target) = self.executor.input(position) {
                target.clone_from(given);
            }
        }
        self.executor.forward(None).map_err(|error| TrainError::Prediction(error.to_string()))?;
        self.prepared = Some(point);
        Ok(self.model.graph().outputs.iter().map(|output| self.executor.tensor(output.value)).collect())
    }

    /// Number of elements of all values that stay in memory for the next prediction.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.executor.elements()
    }
}

/// The given inputs in the graph's order, with their batch and length.
///
/// # Errors
/// As [`GraphPredictor::predict`], but for nodes.
pub(super) fn ordered<'a>(
    graph: &Graph,
    inputs: &'a [NamedTensor],
) -> Result<(Vec<&'a NamedTensor>, Point), TrainError> {
    let ordered = in_order(graph, inputs.iter().map(|given| (&given.name[..], given)))?;
    let shapes: Vec<&[usize]> = ordered.iter().map(|given| &given.shape[..]).collect();
    let point = graph.point_of(&shapes).map_err(TrainError::Graph)?;
    for (input, given) in graph.inputs.iter().zip(&ordered) {
        let expected = given.shape.iter().fold(1_usize, |product, &size| product.saturating_mul(size));
        check(&input.name, (input.element, expected), &given.values)?;
    }
    Ok((ordered, point))
}

/// Checks type and number of an input's elements.
fn check(name: &str, (element, count): (Element, usize), given: &Tensor) -> Result<(), TrainError> {
    if (given.element(), given.len()) == (element, count) {
        return Ok(());
    }
    let (expected, got) = (described(element), described(given.element()));
    let what = format!("{count} {expected} as `{name}`, not {} {got}", given.len());
    Err(TrainError::Inputs { kind: KIND, what })
}

#[cfg(test)]
mod tests {
    use graph_import::{Imported, Options, import};

    use super::*;
    use crate::models::Loss;

    /// The regression over four numbers and a category of five.
    fn table() -> GraphPredictor {
        let onnx = include_bytes!("imported/table.onnx");
        let Imported { graph, parameters, .. } = import(onnx, &Options::default()).unwrap();
        let model = Arc::new(GraphModel::new(graph, Loss::Mse).unwrap());
        let layout = Arc::new(Architecture::Graph(Arc::clone(&model)).layout().unwrap());
        let values = parameters.iter().flat_map(|tensor| &tensor.values).copied().collect();
        GraphPredictor::new(model, Arc::new(Parameters::new(layout, values).unwrap())).unwrap()
    }

    fn floats(name: &str, shape: &[usize], values: &[f32]) -> NamedTensor {
        NamedTensor { name: name.into(), shape: shape.to_vec(), values: Tensor::F32(values.to_vec()) }
    }

    fn integers(name: &str, shape: &[usize], values: &[i64]) -> NamedTensor {
        NamedTensor { name: name.into(), shape: shape.to_vec(), values: Tensor::I64(values.to_vec()) }
    }

    #[test]
    fn predict_by_name_equals_pytorch() {
        let told: serde_json::Value = serde_json::from_str(include_str!("imported/table.json")).unwrap();
        let numbers: Vec<f32> = serde_json::from_value(told["inputs"]["numbers"].clone()).unwrap();
        let kinds: Vec<i64> = serde_json::from_value(told["inputs"]["kind"].clone()).unwrap();
        let expected: Vec<f32> = serde_json::from_value(told["output"].clone()).unwrap();
        let mut predictor = table();
        // One example after the other, then all at once, twice.
        for (row, kind, expected) in (0..4).map(|at| (&numbers[4 * at..][..4], kinds[at], expected[at])) {
            let said = predictor.predict(&[integers("kind", &[1], &[kind]), floats("numbers", &[1, 4], row)]).unwrap();
            assert_eq!((said.len(), &said[0].name[..], &said[0].shape[..]), (1, "y", &[1, 1][..]));
            assert!((said[0].values.f32()[0] - expected).abs() < 1e-5, "{said:?}, not {expected}");
        }
        for _ in 0..2 {
            let said = predictor.predict(&[floats("numbers", &[4, 4], &numbers), integers("kind", &[4], &kinds)]);
            let said = said.unwrap().remove(0);
            assert_eq!(said.shape, [4, 1]);
            assert!(said.values.f32().iter().zip(&expected).all(|(one, other)| (one - other).abs() < 1e-5), "{said:?}");
        }
    }

    #[test]
    fn predict_wrong_inputs_are_named() {
        let mut predictor = table();
        let numbers = || floats("numbers", &[1, 4], &[0.0; 4]);
        let kind = |kind| integers("kind", &[1], &[kind]);
        for (inputs, why) in [
            (vec![numbers()], "the input `kind`, which is missing"),
            (vec![numbers(), kind(1), kind(1)], "the input `kind` once, not twice"),
            (vec![numbers(), kind(1), floats("x", &[1], &[0.0])], "no input `x`; its inputs are `numbers`"),
            (vec![numbers(), integers("kind", &[2], &[1, 1])], "input `kind`: has the shape [2]; [batch] is right"),
            (vec![numbers(), floats("kind", &[1], &[0.0])], "1 integers as `kind`, not 1 floats"),
            (vec![floats("numbers", &[1, 4], &[0.0; 3]), kind(1)], "4 floats as `numbers`, not 3 floats"),
            (vec![numbers(), kind(5)], "position 5 is outside an axis of 5"),
        ] {
            let error = predictor.predict(&inputs).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(predictor.predict(&[numbers(), kind(4)]).is_ok(), "an error leaves it usable");
    }
}
