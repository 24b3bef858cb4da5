//! Graphs against the ready models, and graphs that learn.

use std::sync::Arc;

use graph::{
    Activation, Direction, Element, Graph, GraphModel, Input, Loss, Node, Operation, Output, Parameter, Pool, PoolKind,
    Recurrence, RecurrentCell, Size, ValueId,
};

use super::{convolution, numbers};
use crate::models::{Architecture, Cnn, Gru, Linear, Mlp};
use crate::train::{Column, Device, Examples, Sgd, TargetColumn, evaluate, train};

/// Nodes of a ready model as a graph.
struct Draft {
    graph: Graph,
    next: u32,
}

impl Draft {
    fn new(architecture: &Architecture, input: Input) -> Self {
        let parameters = architecture.tensors().unwrap().into_iter().map(|tensor| Parameter {
            name: tensor.name,
            shape: tensor.shape.iter().map(|&size| u32::try_from(size).unwrap()).collect(),
        });
        let graph = Graph {
            version: Graph::VERSION,
            lengths: None,
            inputs: vec![input],
            parameters: parameters.collect(),
            constants: Vec::new(),
            nodes: Vec::new(),
            outputs: Vec::new(),
        };
        let next = graph.first_result().0;
        Self { graph, next }
    }

    fn add(&mut self, operation: Operation, inputs: &[u32]) -> u32 {
        let first = self.next;
        self.next += operation.outputs();
        let inputs = inputs.iter().map(|&input| ValueId(input)).collect();
        self.graph.nodes.push(Node { name: String::new(), operation, inputs });
        first
    }

    fn affine(&mut self, x: u32, weight: u32) -> u32 {
        let gemm = Operation::Gemm { transpose_a: false, transpose_b: true, alpha: 1.0, beta: 1.0 };
        self.add(gemm, &[x, weight, weight + 1])
    }

    fn relu(&mut self, x: u32) -> u32 {
        self.add(Operation::Activation(Activation::Relu), &[x])
    }

    fn end(mut self, output: u32, loss: Loss) -> Architecture {
        self.graph.outputs.push(Output { name: "scores".into(), value: ValueId(output) });
        Architecture::Graph(Arc::new(GraphModel::new(self.graph, loss).unwrap()))
    }
}

fn rows(width: i64) -> Input {
    Input { name: "x".into(), element: Element::F32, shape: vec![Size::BATCH, Size::fixed(width)] }
}

pub(in crate::train::graph) fn mlp_graph(mlp: &Mlp) -> Architecture {
    let mut draft = Draft::new(&Architecture::Mlp(mlp.clone()), rows(mlp.inputs.into()));
    let mut x = draft.affine(0, 1);
    for layer in 1..=mlp.hidden.len() {
        x = draft.relu(x);
        x = draft.affine(x, 1 + 2 * u32::try_from(layer).unwrap());
    }
    draft.end(x, Loss::CROSS_ENTROPY)
}

pub(in crate::train::graph) fn cnn_graph(cnn: &Cnn) -> Architecture {
    let (height, width) = (i64::from(cnn.height), i64::from(cnn.width));
    let mut draft = Draft::new(&Architecture::Cnn(cnn.clone()), rows(i64::from(cnn.channels) * height * width));
    let image = [Size::BATCH, Size::fixed(cnn.channels.into()), Size::fixed(height), Size::fixed(width)];
    let mut x = draft.add(Operation::Reshape { to: image.map(Some).to_vec() }, &[0]);
    for weight in [1, 3] {
        let conv = Operation::Conv(convolution([1, 1], [(2, 2), (2, 2)], [1, 1], 1));
        x = draft.add(conv, &[x, weight, weight + 1]);
        x = draft.relu(x);
        let pool =
            Pool { by: PoolKind::Max, kernel: vec![2, 2], strides: vec![2, 2], pads: vec![(0, 0); 2], ceil: false };
        x = draft.add(Operation::Pool(pool), &[x]);
    }
    x = draft.add(Operation::Reshape { to: vec![Some(Size::BATCH), None] }, &[x]);
    x = draft.affine(x, 5);
    x = draft.relu(x);
    x = draft.affine(x, 7);
    draft.end(x, Loss::CROSS_ENTROPY)
}

/// Trains both and returns the largest difference of their results.
fn difference(ready: &Architecture, graph: &Architecture, examples: Examples<'_>) -> f32 {
    let start = ready.initial(1).unwrap();
    let plan =
        task_spec::TrainingPlan { epochs: 2, batch_size: 4, learning_rate: 0.1, momentum: 0.5, ..Default::default() };
    let run = |architecture| train(architecture, &start, examples, Sgd { plan: &plan, seed: 1 }, &Device::Cpu).unwrap();
    let (one, other) = (run(ready), run(graph));
    assert!((one.mean_loss - other.mean_loss).abs() < 1e-4, "{} {}", one.mean_loss, other.mean_loss);
    assert_eq!(run(graph).delta, other.delta, "the same bits");
    one.delta.iter().zip(&other.delta).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}

#[test]
fn graphs_equal_the_ready_models() {
    let mlp = Mlp { inputs: 6, hidden: vec![9, 5], classes: 3 };
    let features = numbers(10 * 6, 1);
    let labels: Vec<u32> = (0..10).map(|index| index % 3).collect();
    let examples = Examples::Labelled { features: &features, labels: &labels, width: 6 };
    assert!(difference(&Architecture::Mlp(mlp.clone()), &mlp_graph(&mlp), examples) < 1e-5);
    let cnn = Cnn { height: 9, width: 8, channels: 2, classes: 3 };
    let features = numbers(6 * 144, 2);
    let examples = Examples::Labelled { features: &features, labels: &labels[..6], width: 144 };
    assert!(difference(&Architecture::Cnn(cnn.clone()), &cnn_graph(&cnn), examples) < 1e-4);
    let linear = Linear { inputs: 6, classes: 3 };
    assert_eq!(Architecture::Linear(linear).input(), mlp_graph(&mlp).input());
}

#[test]
fn graph_survives_json_and_knows_its_tensors() {
    let mlp = Mlp { inputs: 6, hidden: vec![9], classes: 3 };
    let graph = mlp_graph(&mlp);
    let json = serde_json::to_value(&graph).unwrap();
    assert_eq!((&json["kind"], &json["loss"]["kind"]), (&"graph".into(), &"cross_entropy".into()));
    assert_eq!(serde_json::from_value::<Architecture>(json).unwrap(), graph);
    assert_eq!(graph.layout().unwrap(), Architecture::Mlp(mlp).layout().unwrap());
    assert_eq!((graph.classes(), graph.defaults().linear_layers.len()), (3, 2));
    assert_eq!(graph.defaults().last_layer, "fc2.weight");
}

#[test]
fn regression_learns_and_checks_its_examples() {
    let mut draft = Draft::new(&Architecture::Linear(Linear { inputs: 3, classes: 2 }), rows(3));
    draft.graph.parameters[0].shape = vec![1, 3];
    draft.graph.parameters[1].shape = vec![1];
    let output = draft.affine(0, 1);
    let graph = draft.end(output, Loss::Mse);
    let start = graph.initial(0).unwrap();
    let features = numbers(60, 9);
    let targets: Vec<f32> = features.chunks(3).map(|row| 2.0 * row[0] - row[1] + 0.5).collect();
    let inputs = [Column::F32(&features)];
    let examples =
        Examples::Tensors { inputs: &inputs, targets: TargetColumn::Numbers(&targets), count: 20, length: 1 };
    let plan = task_spec::TrainingPlan { epochs: 200, batch_size: 5, learning_rate: 0.1, ..Default::default() };
    let trained = train(&graph, &start, examples, Sgd { plan: &plan, seed: 1 }, &Device::Cpu).unwrap();
    let values: Vec<f32> = start.values().iter().zip(&trained.delta).map(|(value, delta)| value + delta).collect();
    assert!(
        (values[0] - 2.0).abs() < 1e-2 && (values[1] + 1.0).abs() < 1e-2 && (values[3] - 0.5).abs() < 1e-2,
        "{values:?}"
    );
    let end = learning::Parameters::new(std::sync::Arc::clone(start.layout()), values).unwrap();
    let measured = evaluate(&graph, &end, examples, &Device::Cpu).unwrap();
    let (rmse, mae) = (measured.measures.rmse.unwrap(), measured.measures.mae.unwrap());
    assert!(rmse < 2e-2 && mae <= rmse && (rmse * rmse - measured.loss).abs() < 1e-6, "{measured:?}");
    assert!(!graph.has_accuracy() && measured.measures.r2.unwrap() > 0.99, "{measured:?}");
    assert_eq!(measured.measures.named().map(|(name, _)| name).collect::<Vec<_>>(), ["rmse", "mae", "r2"]);
    let wrong = |examples: Examples<'_>| evaluate(&graph, &start, examples, &Device::Cpu).unwrap_err().to_string();
    let labels = [0; 20];
    let classes = Examples::Tensors { inputs: &inputs, targets: TargetColumn::Classes(&labels), count: 20, length: 1 };
    assert!(wrong(classes).contains("numbers as targets: its loss is mse"), "{}", wrong(classes));
    let short = Examples::Tensors {
        inputs: &[Column::F32(&features[1..])],
        targets: TargetColumn::Numbers(&targets),
        count: 20,
        length: 1,
    };
    assert!(wrong(short).contains("3 floats an example as its input `x`"), "{}", wrong(short));
    let none = Examples::Tensors { inputs: &[], targets: TargetColumn::Numbers(&targets), count: 20, length: 1 };
    assert!(wrong(none).contains("1 inputs, not 0; its inputs are `x`"), "{}", wrong(none));
}

#[test]
fn gru_graph_learns_next_characters() {
    // A graph of Gather, GRU and Gemm in ONNX's form, which the ready model's names do not fit.
    let gru = Gru::with_vocabulary(5);
    assert_eq!(Architecture::Gru(gru).classes(), 5);
    let graph = Graph {
        version: Graph::VERSION,
        lengths: Some(graph::Lengths { least: 1, most: 64 }),
        inputs: vec![Input { name: "tokens".into(), element: Element::I64, shape: vec![Size::BATCH, Size::LENGTH] }],
        parameters: [
            ("embed", vec![5, 4]),
            ("w", vec![1, 18, 4]),
            ("r", vec![1, 18, 6]),
            ("b", vec![1, 36]),
            ("out", vec![6, 5]),
        ]
        .map(|(name, shape)| Parameter { name: name.into(), shape })
        .to_vec(),
        constants: Vec::new(),
        nodes: [
            (Operation::Gather { axis: 0 }, vec![1, 0]),
            (Operation::Transpose { order: vec![1, 0, 2] }, vec![6]),
            (
                Operation::Recurrent(Recurrence { cell: RecurrentCell::Gru, hidden: 6, direction: Direction::Forward }),
                vec![7, 2, 3, 4],
            ),
            (Operation::Transpose { order: vec![2, 0, 1, 3] }, vec![8]),
            (Operation::Reshape { to: vec![Some(Size::BATCH), Some(Size::LENGTH), Some(Size::fixed(6))] }, vec![10]),
            (Operation::MatMul, vec![11, 5]),
        ]
        .map(|(operation, inputs)| Node {
            name: String::new(),
            operation,
            inputs: inputs.into_iter().map(ValueId).collect(),
        })
        .to_vec(),
        outputs: vec![Output { name: "scores".into(), value: ValueId(12) }],
    };
    let graph = Architecture::Graph(Arc::new(GraphModel::new(graph, Loss::NextToken { ignore: None }).unwrap()));
    assert_eq!((graph.input(), graph.classes()), (crate::models::InputKind::Characters, 5));
    let text: Vec<u32> = (0..161).map(|index| [0, 1, 2, 3, 4, 3, 2, 1][index % 8]).collect();
    let examples = Examples::Text { inputs: &text[..160], targets: &text[1..], length: 16 };
    let start = graph.initial(3).unwrap();
    let before = evaluate(&graph, &start, examples, &Device::Cpu).unwrap();
    let plan = task_spec::TrainingPlan { epochs: 60, batch_size: 2, learning_rate: 0.5, ..Default::default() };
    let trained = train(&graph, &start, examples, Sgd { plan: &plan, seed: 1 }, &Device::Cpu).unwrap();
    assert!(trained.mean_loss < before.loss / 2.0, "{} of {}", trained.mean_loss, before.loss);
}
