//! Graphs that are written as ONNX: read again they compute the same numbers, and ONNX Runtime computes them, too
//! (`onnxruntime.py`).

mod layers;
mod operations;

use std::collections::BTreeSet;
use std::sync::Arc;

use graph::{
    Arithmetic, Constant, Element, Extent, Graph, GraphModel, Input, Lengths, Loss, Node, Operation, Output, Parameter,
    Point, Size, ValueId, Values,
};
use graph_import::{Imported, Options, export, import};
use learning::Parameters;

use super::predict::{GraphPredictor, NamedTensor};
use super::tensor::Tensor;
use crate::models::Architecture;

/// An input of an operation.
enum Given {
    /// An input of the graph; the first size is the batch.
    Input(Element, Vec<Size>),
    /// A parameter.
    Parameter(Vec<u32>),
    /// A constant.
    Constant(Vec<u32>, Values),
    /// The result of an operation on another one.
    Moved(Operation, Box<Given>),
}

/// A graph around an operation.
struct Case {
    name: String,
    operation: Operation,
    inputs: Vec<Given>,
    /// Which result is used.
    result: u32,
    /// Operations that make the batch the first axis of the result.
    after: Vec<Operation>,
    /// Added to the random numbers of inputs and parameters, which are from -1 to 1.
    offset: f32,
    /// Factor of these numbers before the offset.
    scale: f32,
}

/// A case with the first result and numbers around 0.
fn case(name: impl Into<String>, operation: Operation, inputs: Vec<Given>) -> Case {
    Case { name: name.into(), operation, inputs, result: 0, after: vec![], offset: 0.0, scale: 1.0 }
}

/// An input `[batch, …]` of floats.
fn floats(sizes: &[i64]) -> Given {
    Given::Input(Element::F32, sizes_of(sizes))
}

/// The batch and these sizes; 0 stands for the length.
fn sizes_of(sizes: &[i64]) -> Vec<Size> {
    let size = |&size: &i64| if size == 0 { Size::LENGTH } else { Size::fixed(size) };
    std::iter::once(Size::BATCH).chain(sizes.iter().map(size)).collect()
}

/// A sequence of pseudo-random numbers from -1 to 1.
struct Draws(u64);

impl Draws {
    fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / 8_388_608.0 - 1.0
    }

    /// Elements of a type; integers from 1 to 3.
    fn tensor(&mut self, element: Element, count: usize, [scale, offset]: [f32; 2]) -> Tensor {
        let mut units = (0..count).map(|_| self.unit());
        match element {
            Element::F32 => Tensor::F32(units.map(|unit| scale * unit + offset).collect()),
            Element::I64 => Tensor::I64(units.map(|unit| 2 + i64::from(unit > 0.3) - i64::from(unit < -0.3)).collect()),
            Element::Bool => Tensor::Bool(units.by_ref().map(|unit| unit > 0.0).collect()),
        }
    }
}

impl Case {
    /// Factor and offset of its numbers.
    fn range(&self) -> [f32; 2] {
        [self.scale, self.offset]
    }

    /// `y = w * operation(…)`, next to an input that shows batch and length.
    fn graph(&self) -> Graph {
        let mut graph = Graph {
            version: Graph::VERSION,
            lengths: Some(Lengths { least: 2, most: 9 }),
            inputs: vec![Input { name: "anchor".into(), element: Element::F32, shape: sizes_of(&[0]) }],
            parameters: vec![Parameter { name: "w".into(), shape: vec![1] }],
            constants: vec![],
            nodes: vec![],
            outputs: vec![],
        };
        self.inputs.iter().for_each(|given| declare(&mut graph, given));
        let mut next = [1, 1, 0];
        let inputs: Vec<ValueId> = self.inputs.iter().map(|given| value(&mut graph, given, &mut next)).collect();
        let first = push(&mut graph, self.operation.clone(), inputs);
        let mut last = ValueId(first.0 + self.result);
        for operation in &self.after {
            last = push(&mut graph, operation.clone(), vec![last]);
        }
        last = push(&mut graph, Operation::Cast { to: Element::F32 }, vec![last]);
        let w = graph.parameter(0);
        let value = push(&mut graph, Operation::Arithmetic(Arithmetic::Mul), vec![last, w]);
        graph.outputs.push(Output { name: "y".into(), value });
        graph
    }
}

/// Adds the inputs, parameters and constants of a case, which come before all results.
fn declare(graph: &mut Graph, given: &Given) {
    match given {
        Given::Input(element, shape) => {
            let name = format!("x{}", graph.inputs.len());
            graph.inputs.push(Input { name, element: *element, shape: shape.clone() });
        }
        Given::Parameter(shape) => {
            let name = format!("p{}.weight", graph.parameters.len());
            graph.parameters.push(Parameter { name, shape: shape.clone() });
        }
        Given::Constant(shape, values) => {
            let name = format!("c{}", graph.constants.len());
            graph.constants.push(Constant { name, shape: shape.clone(), values: values.clone() });
        }
        Given::Moved(_, inner) => declare(graph, inner),
    }
}

/// The value of an input. `next`: numbers of the next input, parameter and constant.
fn value(graph: &mut Graph, given: &Given, next: &mut [usize; 3]) -> ValueId {
    let mut take = |kind: usize| {
        next[kind] += 1;
        next[kind] - 1
    };
    match given {
        Given::Input(..) => graph.input(take(0)),
        Given::Parameter(_) => graph.parameter(take(1)),
        Given::Constant(..) => graph.constant(take(2)),
        Given::Moved(operation, inner) => {
            let inner = value(graph, inner, next);
            push(graph, operation.clone(), vec![inner])
        }
    }
}

/// Adds a node; gives its first result.
fn push(graph: &mut Graph, operation: Operation, inputs: Vec<ValueId>) -> ValueId {
    let result = ValueId(u32::try_from(graph.value_count()).unwrap());
    graph.nodes.push(Node { name: String::new(), operation, inputs });
    result
}

/// A predictor of a graph with these parameters.
fn predictor(graph: Graph, values: Vec<f32>) -> GraphPredictor {
    let model = Arc::new(GraphModel::new(graph, Loss::Mse).unwrap());
    let layout = Arc::new(Architecture::Graph(Arc::clone(&model)).layout().unwrap());
    GraphPredictor::new(model, Arc::new(Parameters::new(layout, values).unwrap())).unwrap()
}

/// Inputs of a graph for a batch and a length.
fn inputs(graph: &Graph, point: Point, draws: &mut Draws, range: [f32; 2]) -> Vec<NamedTensor> {
    let input = |input: &Input| {
        let shape: Vec<usize> =
            input.shape.iter().map(|size| usize::try_from(size.at(point).unwrap()).unwrap()).collect();
        let values = draws.tensor(input.element, shape.iter().product(), range);
        NamedTensor { name: input.name.clone(), shape, values }
    };
    graph.inputs.iter().map(input).collect()
}

/// Exports and imports a graph, and compares both. Gives the file, inputs and outputs.
fn check(name: &str, graph: Graph, values: Vec<f32>, range: [f32; 2]) -> (Vec<u8>, Vec<NamedTensor>, Vec<NamedTensor>) {
    let file = export(&graph, &values, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
    let options = Options {
        tied: graph.parameters.iter().map(|parameter| parameter.name.clone()).collect(),
        ..Options::default()
    };
    let Imported { graph: again, parameters, .. } =
        import(&file, &options).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(graph.parameters.len(), again.parameters.len(), "{name}");
    let imported: Vec<f32> = parameters.iter().flat_map(|tensor| &tensor.values).copied().collect();
    assert_eq!(imported, values, "{name}: the parameters in their order");
    assert_eq!(graph.output_ports().unwrap()[0].shape[0], Extent::Batch, "{name}");
    let (mut one, mut other) = (predictor(graph.clone(), values), predictor(again, imported));
    let mut last = (Vec::new(), Vec::new());
    for (batch, length) in [(1, 2), (3, 5)] {
        let given = inputs(&graph, Point { batch, length }, &mut Draws(batch.into()), range);
        let said = one.predict(&given).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(said[0].values.f32().len(), said[0].shape.iter().product::<usize>());
        assert_close(name, &said, &other.predict(&given).unwrap());
        last = (given, said);
    }
    (file, last.0, last.1)
}

fn assert_close(name: &str, one: &[NamedTensor], other: &[NamedTensor]) {
    assert_eq!(one.len(), other.len(), "{name}");
    for (one, other) in one.iter().zip(other) {
        assert_eq!((&one.name, &one.shape), (&other.name, &other.shape), "{name}");
        for (a, b) in one.values.f32().iter().zip(other.values.f32()) {
            assert!((a - b).abs() <= 1e-6 * a.abs().max(1.0), "{name}: {a} and {b}");
        }
    }
}

fn all_cases() -> Vec<Case> {
    [
        operations::elementwise(),
        operations::selection(),
        operations::movement(),
        layers::products(),
        layers::windows(),
        layers::reductions(),
        layers::normalizations(),
        layers::recurrences(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Parameters of a case; the first is the factor of the result.
fn parameters(graph: &Graph, range: [f32; 2]) -> Vec<f32> {
    let count: u32 = graph.parameters.iter().map(|parameter| parameter.shape.iter().product::<u32>()).sum();
    Draws(7).tensor(Element::F32, count as usize, range).f32().to_vec()
}

#[test]
fn every_operation_survives_export_and_import() {
    let mut operations = BTreeSet::new();
    for case in all_cases() {
        let graph = case.graph();
        let values = parameters(&graph, case.range());
        check(&case.name, graph, values, case.range());
        operations.insert(case.operation.name());
    }
    assert_eq!(operations.len(), 33, "{operations:?}");
}

/// The networks that were exported from PyTorch, with their parameters.
fn networks() -> Vec<(&'static str, Graph, Vec<f32>)> {
    let read = |name: &'static str, onnx: &[u8], tied: &[&str]| {
        let tied = tied.iter().map(|name| (*name).to_owned()).collect();
        let Imported { graph, parameters, .. } = import(onnx, &Options { tied, ..Options::default() }).unwrap();
        (name, graph, parameters.iter().flat_map(|tensor| &tensor.values).copied().collect())
    };
    vec![
        read("residual", include_bytes!("../imported/residual.onnx"), &[]),
        read("transformer", include_bytes!("../imported/transformer.onnx"), &["embed.weight"]),
        read("recurrent", include_bytes!("../imported/recurrent.onnx"), &[]),
        read("table", include_bytes!("../imported/table.onnx"), &[]),
    ]
}

#[test]
fn networks_survive_export_and_import() {
    for (name, graph, values) in networks() {
        check(name, graph, values, [1.0, 0.0]);
    }
}

/// Writes all files with inputs and outputs to `tributary-onnx` in the system's folder for temporary files.
#[test]
#[ignore = "onnxruntime.py compares what it writes"]
fn files_for_onnx_runtime() {
    let folder = std::env::temp_dir().join("tributary-onnx");
    std::fs::create_dir_all(&folder).unwrap();
    let cases = all_cases().into_iter().map(|case| {
        let graph = case.graph();
        let (range, values) = (case.range(), parameters(&graph, case.range()));
        (case.name, graph, values, range)
    });
    let networks = networks().into_iter().map(|(name, graph, values)| (name.to_owned(), graph, values, [1.0, 0.0]));
    for (name, graph, values, range) in cases.chain(networks) {
        let (file, given, said) = check(&name, graph, values, range);
        std::fs::write(folder.join(format!("{name}.onnx")), file).unwrap();
        let tensor = |tensor: &NamedTensor| {
            let (kind, data) = match &tensor.values {
                Tensor::F32(values) => ("float32", serde_json::json!(values)),
                Tensor::I64(values) => ("int64", serde_json::json!(values)),
                Tensor::Bool(values) => ("bool", serde_json::json!(values)),
            };
            serde_json::json!({ "name": tensor.name, "shape": tensor.shape, "type": kind, "data": data })
        };
        let all = |tensors: &[NamedTensor]| tensors.iter().map(tensor).collect::<Vec<_>>();
        let told = serde_json::json!({ "inputs": all(&given), "outputs": all(&said) });
        std::fs::write(folder.join(format!("{name}.json")), told.to_string()).unwrap();
    }
}
