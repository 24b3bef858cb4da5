//! Predictions of a graph, with its inputs and outputs by name.

use std::sync::Arc;

use graph::{Element, Graph, GraphModel, Point, infer};
use learning::Parameters;

use super::examples::{GraphInputs, check_inputs};
use super::executor::Executor;
use super::named::{KIND, described, in_order};
use super::tensor::Tensor;
use crate::models::Architecture;
use crate::train::EVALUATION_BATCH;
use crate::train::error::TrainError;
use crate::train::examples::Column;

/// The first output of a graph for some examples.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphOutput {
    /// Its elements in row-major order.
    pub values: Vec<f32>,
    /// Its sizes, the number of examples first.
    pub shape: Vec<usize>,
}

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
    /// [`Self::outputs`].
    pub fn predict(&mut self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>, TrainError> {
        let (ordered, Point { batch, length }) = ordered(self.model.graph(), inputs)?;
        let columns: Vec<_> = ordered.iter().map(|given| given.values.column()).collect();
        self.outputs(GraphInputs { columns: &columns, count: batch as usize, length: length as usize })
    }

    /// All outputs of the graph, in its order, for inputs in its order. More than 64 examples are computed in batches of
    /// 64, unless an output has a further axis that depends on the batch.
    ///
    /// # Errors
    /// [`TrainError::NoExamples`]; [`TrainError::Inputs`] for inputs that do not fit the graph; otherwise as
    /// [`Self::compute`].
    pub fn outputs(&mut self, inputs: GraphInputs<'_>) -> Result<Vec<NamedTensor>, TrainError> {
        check_inputs(&self.model, &inputs.examples())?;
        let GraphInputs { columns, count, .. } = inputs;
        let whole = inputs.point();
        let together = if self.is_by_example(whole)? { EVALUATION_BATCH } else { count };
        let mut outputs: Vec<NamedTensor> = Vec::new();
        for start in (0..count).step_by(together) {
            let range = start..count.min(start + together);
            let part: Vec<_> = columns.iter().map(|column| column.part(&range, count)).collect();
            let point = GraphInputs { columns: &part, count: range.len(), ..inputs }.point();
            let found = self.compute(&part, point)?;
            if outputs.is_empty() {
                outputs = self.named(found, whole)?;
            } else {
                outputs.iter_mut().zip(&found).for_each(|(output, more)| output.values.append(more));
            }
        }
        Ok(outputs)
    }

    /// The first output of the graph, which its loss is computed from.
    ///
    /// # Errors
    /// As [`Self::outputs`].
    pub fn first_output(&mut self, inputs: GraphInputs<'_>) -> Result<GraphOutput, TrainError> {
        match self.outputs(inputs)?.into_iter().next() {
            Some(NamedTensor { values: Tensor::F32(values), shape, .. }) => Ok(GraphOutput { values, shape }),
            // A loss needs a first output of floats.
            Some(NamedTensor { values: Tensor::I64(_) | Tensor::Bool(_), .. }) | None => {
                Err(TrainError::OtherModel { kind: KIND })
            }
        }
    }

    /// Whether the sizes of all outputs, after their first axis, are those of a single example.
    fn is_by_example(&self, Point { batch, length }: Point) -> Result<bool, TrainError> {
        if batch as usize <= EVALUATION_BATCH {
            return Ok(true);
        }
        let graph = self.model.graph();
        let of = |batch| infer(graph, Point { batch, length }).map_err(TrainError::Graph);
        let (one, two) = (of(1)?, of(2)?);
        let mut sizes =
            graph.outputs.iter().map(|output| [&one, &two].map(|shapes| &shapes.get(output.value).shape[1..]));
        Ok(sizes.all(|[one, two]| one == two))
    }

    /// Outputs of the last batch with their names, and with the sizes that they have for `whole`.
    fn named(&mut self, outputs: Vec<Tensor>, whole: Point) -> Result<Vec<NamedTensor>, TrainError> {
        let last = self.prepared.unwrap_or(whole);
        let shapes = self.executor.prepare(last).map_err(TrainError::Graph)?;
        let named = self.model.graph().outputs.iter().zip(outputs).map(|(output, values)| {
            let mut shape = shapes.get(output.value).shape.clone();
            if let Some(batch) = shape.first_mut() {
                *batch = whole.batch as usize;
            }
            NamedTensor { name: output.name.clone(), shape, values }
        });
        Ok(named.collect())
    }

    /// All outputs of the graph, in its order, for the elements of its inputs, in its order. All examples are computed at
    /// once.
    ///
    /// # Errors
    /// [`TrainError::Graph`] for a batch and length that the graph does not compute, before memory is allocated;
    /// [`TrainError::Inputs`] for a wrong type or number of elements; [`TrainError::Prediction`] names the node that
    /// cannot compute, for example an integer outside a table of embeddings.
    pub fn compute(&mut self, inputs: &[Column<'_>], point: Point) -> Result<Vec<Tensor>, TrainError> {
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
            check(&input.name, (expected.element, expected.elements()), *given)?;
        }
        if is_new {
            self.executor.set_parameters(self.parameters.values());
        }
        for (position, given) in inputs.iter().enumerate() {
            if let Some(target) = self.executor.input(position) {
                target.copy_from(*given);
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
        check(&input.name, (input.element, expected), given.values.column())?;
    }
    Ok((ordered, point))
}

/// Checks type and number of an input's elements.
fn check(name: &str, right: (Element, usize), given: Column<'_>) -> Result<(), TrainError> {
    if given.size() == right {
        return Ok(());
    }
    let [(count, expected), (len, got)] = [right, given.size()].map(|(element, count)| (count, described(element)));
    let what = format!("{count} {expected} as `{name}`, not {len} {got}");
    Err(TrainError::Inputs { kind: KIND, what })
}

#[cfg(test)]
mod tests {
    use graph::{Arithmetic, Input, Node, Operation, Output, Parameter, Size, ValueId};
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
    fn outputs_of_batches_equal_one_batch() {
        let mut predictor = table();
        let count = EVALUATION_BATCH + 3;
        let numbers: Vec<f32> = (0..count * 4).map(|number| (number % 13) as f32 / 13.0).collect();
        let kind: Vec<i64> = (0..count).map(|number| (number % 5) as i64).collect();
        let columns = [Column::F32(&numbers), Column::I64(&kind)];
        let all = predictor.outputs(GraphInputs { columns: &columns, count, length: 1 }).unwrap().remove(0);
        assert_eq!((&all.name[..], &all.shape[..], all.values.len()), ("y", &[count, 1][..], count));
        for example in [0, EVALUATION_BATCH - 1, EVALUATION_BATCH, count - 1] {
            let columns = columns.map(|column| column.part(&(example..example + 1), count));
            let one = predictor.outputs(GraphInputs { columns: &columns, count: 1, length: 1 }).unwrap().remove(0);
            assert_eq!(one.shape, [1, 1]);
            assert!((one.values.f32()[0] - all.values.f32()[example]).abs() < 1e-6);
        }
        let none = predictor.outputs(GraphInputs { columns: &columns, count: 0, length: 1 }).unwrap_err();
        assert_eq!(none.to_string(), "there are no examples");
    }

    #[test]
    fn outputs_across_the_batch_are_not_divided() {
        // Each example times each example.
        let transpose = Node {
            name: String::new(),
            operation: Operation::Transpose { order: vec![1, 0] },
            inputs: vec![ValueId(0)],
        };
        let product = Node { name: String::new(), operation: Operation::MatMul, inputs: vec![ValueId(0), ValueId(2)] };
        let scale = Operation::Arithmetic(Arithmetic::Mul);
        let scaled = Node { name: String::new(), operation: scale, inputs: vec![ValueId(0), ValueId(1)] };
        let graph = Graph {
            version: Graph::VERSION,
            lengths: None,
            inputs: vec![Input { name: "x".into(), element: Element::F32, shape: vec![Size::BATCH, Size::fixed(1)] }],
            parameters: vec![Parameter { name: "scale".into(), shape: vec![1] }],
            constants: vec![],
            nodes: vec![transpose, product, scaled],
            outputs: [("y", 4), ("pairs", 3)]
                .map(|(name, value)| Output { name: name.into(), value: ValueId(value) })
                .to_vec(),
        };
        let model = Arc::new(GraphModel::new(graph, Loss::Mse).unwrap());
        let layout = Arc::new(Architecture::Graph(Arc::clone(&model)).layout().unwrap());
        let mut predictor = GraphPredictor::new(model, Arc::new(Parameters::new(layout, vec![2.0]).unwrap())).unwrap();
        let count = EVALUATION_BATCH + 1;
        let x: Vec<f32> = (0..count).map(|number| number as f32).collect();
        let found = predictor.predict(&[floats("x", &[count, 1], &x)]).unwrap();
        assert_eq!((&found[0].shape[..], &found[1].shape[..]), (&[count, 1][..], &[count, count][..]));
        assert_eq!((found[0].values.f32()[3], found[1].values.f32()[3 * count + 64]), (6.0, 192.0));
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
            (vec![numbers(), kind(5)], "integers from 0 to 4 as its input `kind`, not 5 (example 0)"),
        ] {
            let error = predictor.predict(&inputs).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(predictor.predict(&[numbers(), kind(4)]).is_ok(), "an error leaves it usable");
    }
}
