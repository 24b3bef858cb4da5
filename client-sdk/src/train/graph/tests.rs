//! Gradients of every operation against finite differences, and graphs against the ready models.

use std::sync::Arc;

use graph::{
    Activation, Arithmetic, Comparison, Constant, Convolution, Direction, Element, Graph, GraphModel, Input, Logic,
    Loss, Node, Operation, Output, Padding, Parameter, Point, Pool, PoolKind, Recurrence, RecurrentCell, Reduction,
    Resampling, ResizeCoordinates, Size, ValueId, Values,
};

use super::executor::Executor;
use crate::models::{Architecture, Cnn, Gru, Linear, Mlp};
use crate::train::{Column, Device, Examples, Sgd, TargetColumn, evaluate, train};

/// A graph of one input `x`, parameters, constants and nodes; its output is the last node's first result.
struct Case {
    name: &'static str,
    parameters: Vec<Vec<u32>>,
    constants: Vec<Constant>,
    nodes: Vec<(Operation, Vec<u32>)>,
    /// Added to each parameter, to stay where a function is smooth.
    offset: f32,
}

fn case(name: &'static str, parameters: &[&[u32]], operation: Operation) -> Case {
    // Value 0 is the input; the parameters follow.
    let inputs = (1..=u32::try_from(parameters.len()).unwrap()).collect();
    Case {
        name,
        parameters: parameters.iter().map(|shape| shape.to_vec()).collect(),
        constants: Vec::new(),
        nodes: vec![(operation, inputs)],
        offset: 0.0,
    }
}

fn ints(shape: &[u32], values: &[i64]) -> Constant {
    Constant { name: String::new(), shape: shape.to_vec(), values: Values::I64(values.to_vec()) }
}

impl Case {
    fn offset(self, offset: f32) -> Self {
        Self { offset, ..self }
    }

    /// With a constant after the parameters, as the operation's last input.
    fn with(mut self, constant: Constant) -> Self {
        let number = u32::try_from(1 + self.parameters.len() + self.constants.len()).unwrap();
        self.constants.push(constant);
        self.nodes[0].1.push(number);
        self
    }

    /// The graph: the result is weighted by fixed numbers and reshaped to one row for each example of a batch of 1.
    fn model(&self) -> Arc<GraphModel> {
        let nodes = self.nodes.iter().map(|(operation, inputs)| Node {
            name: String::new(),
            operation: operation.clone(),
            inputs: inputs.iter().map(|&input| ValueId(input)).collect(),
        });
        let mut graph = Graph {
            version: Graph::VERSION,
            lengths: None,
            inputs: vec![Input { name: "x".into(), element: Element::F32, shape: vec![Size::BATCH] }],
            parameters: self
                .parameters
                .iter()
                .enumerate()
                .map(|(index, shape)| Parameter { name: format!("p{index}"), shape: shape.clone() })
                .collect(),
            constants: self.constants.clone(),
            nodes: nodes.collect(),
            outputs: Vec::new(),
        };
        let mut last = graph.first_result().0;
        let mut add = |operation: Operation, inputs: Vec<ValueId>| {
            graph.nodes.push(Node { name: String::new(), operation, inputs });
        };
        // Every example gives the sum of all elements times itself, so the output has the batch as its first axis.
        let all = Operation::Reshape { to: vec![Some(Size::fixed(1)), None] };
        add(all, vec![ValueId(last)]);
        last += self.nodes[0].0.outputs();
        let column = Operation::Reshape { to: vec![Some(Size::BATCH), Some(Size::fixed(1))] };
        add(column, vec![ValueId(0)]);
        add(Operation::MatMul, vec![ValueId(last + 1), ValueId(last)]);
        graph.outputs.push(Output { name: "y".into(), value: ValueId(last + 2) });
        Arc::new(GraphModel::new(graph, Loss::Mse).unwrap_or_else(|error| panic!("{}: {error}", self.name)))
    }

    /// Compares each parameter's gradient with central differences, in random directions of the output.
    fn check(&self) {
        let model = self.model();
        let mut executor = Executor::new(Arc::clone(&model));
        let shapes = executor.prepare(Point { batch: 1, length: 1 }).unwrap();
        let count = shapes.elements(model.output());
        let size = self.parameters.iter().map(|shape| shape.iter().product::<u32>() as usize).sum();
        let start: Vec<f32> = numbers(size, 3).iter().map(|number| number + self.offset).collect();
        let weights: Vec<f32> = numbers(count, 5).iter().map(|number| number + 0.25).collect();
        *executor.input(0).unwrap() = super::tensor::Tensor::F32(vec![1.0]);
        let mut value = |parameters: &[f32]| -> f64 {
            executor.set_parameters(parameters);
            executor.forward(None).unwrap();
            let output = executor.value(model.output());
            output.iter().zip(&weights).map(|(output, weight)| f64::from(*output) * f64::from(*weight)).sum()
        };
        value(&start);
        let step = 1e-2;
        let differences: Vec<f64> = (0..size)
            .map(|index| {
                let mut moved = |by: f32| {
                    let mut parameters = start.clone();
                    parameters[index] += by;
                    value(&parameters)
                };
                // Richardson's extrapolation of two central differences.
                let wide = (moved(step) - moved(-step)) / f64::from(2.0 * step);
                let narrow = (moved(step / 2.0) - moved(-step / 2.0)) / f64::from(step);
                (4.0 * narrow - wide) / 3.0
            })
            .collect();
        value(&start);
        let mut gradient = vec![f32::NAN; size];
        executor.backward(model.output(), &weights, &mut gradient);
        let largest = differences.iter().fold(0.1_f64, |largest, value| largest.max(value.abs()));
        for (index, (found, expected)) in gradient.iter().zip(&differences).enumerate() {
            let error = (f64::from(*found) - expected).abs() / largest;
            assert!(error < 4e-3, "{}: parameter {index}: {found}, and differences give {expected}", self.name);
        }
        assert!(gradient.iter().any(|value| *value != 0.0), "{}: the gradient is 0", self.name);
    }
}

/// Repeatable numbers between -1 and 1, away from 0 and from each other.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut draws: Vec<(u64, usize)> = (0..count)
        .map(|index| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40, index)
        })
        .collect();
    draws.sort_unstable();
    let mut numbers = vec![0.0; count];
    // Equidistant, so that a difference crosses no other number.
    for (rank, (_, index)) in draws.into_iter().enumerate() {
        let unit = (2 * rank + 1) as f32 / count as f32 - 1.0;
        numbers[index] = unit + 0.05 * unit.signum();
    }
    numbers
}

#[test]
fn activation_gradients_equal_differences() {
    for activation in [
        Activation::Identity,
        Activation::Neg,
        Activation::Abs,
        Activation::Exp,
        Activation::Erf,
        Activation::Sin,
        Activation::Cos,
        Activation::Tanh,
        Activation::Sigmoid,
        Activation::Relu,
        Activation::LeakyRelu { alpha: 0.1 },
        Activation::Elu { alpha: 0.7 },
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Softplus,
        Activation::HardSigmoid { alpha: 0.2, beta: 0.5 },
        Activation::HardSwish,
        Activation::Clip { min: Some(-0.55), max: Some(0.55) },
    ] {
        case("activation", &[&[3, 7]], Operation::Activation(activation)).check();
    }
    for activation in [Activation::Log, Activation::Sqrt, Activation::Reciprocal] {
        case("positive activation", &[&[3, 7]], Operation::Activation(activation)).offset(2.5).check();
    }
}

#[test]
fn arithmetic_gradients_equal_differences() {
    let shapes: [[&[u32]; 2]; 6] = [
        [&[2, 3], &[2, 3]],
        [&[2, 3], &[3]],
        [&[2, 3], &[]],
        [&[2, 1], &[1, 3]],
        [&[3], &[4, 2, 3]],
        [&[2, 3, 2], &[3, 1]],
    ];
    for shapes in shapes {
        for kind in [Arithmetic::Add, Arithmetic::Sub, Arithmetic::Mul, Arithmetic::Min, Arithmetic::Max] {
            case("arithmetic", &shapes, Operation::Arithmetic(kind)).check();
        }
        for kind in [Arithmetic::Div, Arithmetic::Pow] {
            case("division", &shapes, Operation::Arithmetic(kind)).offset(2.0).check();
        }
    }
    let square = Constant { name: String::new(), shape: vec![], values: Values::F32(vec![2.0]) };
    case("square", &[&[5]], Operation::Arithmetic(Arithmetic::Pow)).with(square).check();
}

#[test]
fn choice_gradient_follows_the_condition() {
    let condition = Constant { name: String::new(), shape: vec![1, 3], values: Values::Bool(vec![true, false, true]) };
    let mut choice = case("where", &[&[2, 3], &[2, 1]], Operation::Where);
    choice.constants.push(condition);
    choice.nodes[0].1 = vec![3, 1, 2];
    choice.check();
}

#[test]
fn product_gradients_equal_differences() {
    let shapes: [[&[u32]; 2]; 7] = [
        [&[3, 4], &[4, 5]],
        [&[2, 3, 4], &[4, 5]],
        [&[2, 3, 4], &[2, 4, 5]],
        [&[2, 1, 3, 4], &[1, 3, 4, 2]],
        [&[4], &[4, 3]],
        [&[3, 4], &[4]],
        [&[2, 3, 4], &[1, 4, 5]],
    ];
    for shapes in shapes {
        case("matmul", &shapes, Operation::MatMul).check();
    }
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let a: &[u32] = if transpose_a { &[4, 3] } else { &[3, 4] };
        let b: &[u32] = if transpose_b { &[5, 4] } else { &[4, 5] };
        for (c, alpha, beta) in [(&[5][..], 1.0, 1.0), (&[3, 1], 0.7, -1.3), (&[3, 5], 1.0, 0.5)] {
            case("gemm", &[a, b, c], Operation::Gemm { transpose_a, transpose_b, alpha, beta }).check();
        }
    }
}

fn convolution(strides: [u32; 2], pads: [(u32, u32); 2], dilations: [u32; 2], groups: u32) -> Convolution {
    Convolution { strides: strides.to_vec(), pads: pads.to_vec(), dilations: dilations.to_vec(), groups }
}

#[test]
fn convolution_gradients_equal_differences() {
    for (conv, x, weights) in [
        (convolution([1, 1], [(0, 0), (0, 0)], [1, 1], 1), [2, 3, 5, 6], [4, 3, 3, 2]),
        (convolution([2, 1], [(1, 0), (2, 1)], [1, 2], 1), [2, 2, 7, 6], [3, 2, 3, 3]),
        (convolution([2, 3], [(1, 1), (1, 1)], [1, 1], 2), [1, 4, 6, 7], [6, 2, 3, 3]),
        (convolution([1, 1], [(1, 1), (1, 1)], [1, 1], 4), [2, 4, 5, 5], [4, 1, 3, 3]),
        (convolution([2, 2], [(1, 0), (0, 1)], [2, 1], 3), [2, 3, 6, 6], [6, 1, 2, 3]),
    ] {
        case("conv", &[&x, &weights, &weights[..1]], Operation::Conv(conv)).check();
    }
    let line = Convolution { strides: vec![2], pads: vec![(1, 2)], dilations: vec![2], groups: 1 };
    case("conv 1-d", &[&[3, 2, 9], &[4, 2, 3], &[4]], Operation::Conv(line)).check();
}

#[test]
fn transposed_convolution_gradients_equal_differences() {
    for (of, x, weights, bias, output_padding) in [
        (convolution([1, 1], [(0, 0), (0, 0)], [1, 1], 1), [2, 3, 4, 3], [3, 2, 3, 2], 2, vec![0, 0]),
        (convolution([2, 2], [(1, 1), (1, 0)], [1, 1], 1), [1, 2, 3, 4], [2, 3, 3, 3], 3, vec![1, 1]),
        (convolution([2, 1], [(0, 1), (1, 1)], [1, 2], 2), [2, 4, 3, 4], [4, 1, 2, 2], 2, vec![0, 0]),
    ] {
        case("conv_transpose", &[&x, &weights, &[bias]], Operation::ConvTranspose { of, output_padding }).check();
    }
    let of = Convolution { strides: vec![3], pads: vec![(1, 0)], dilations: vec![1], groups: 1 };
    let line = Operation::ConvTranspose { of, output_padding: vec![2] };
    case("conv_transpose 1-d", &[&[2, 2, 4], &[2, 3, 3], &[3]], line).check();
}

#[test]
fn pool_gradients_equal_differences() {
    for by in [PoolKind::Max, PoolKind::Mean, PoolKind::MeanWithPadding] {
        for (kernel, strides, pads, ceil) in [
            ([2, 2], [2, 2], [(0, 0), (0, 0)], false),
            ([3, 2], [2, 1], [(1, 1), (0, 1)], false),
            ([3, 3], [2, 2], [(1, 0), (1, 1)], true),
        ] {
            let pool = Pool { by, kernel: kernel.to_vec(), strides: strides.to_vec(), pads: pads.to_vec(), ceil };
            case("pool", &[&[2, 2, 5, 6]], Operation::Pool(pool)).check();
        }
        let line = Pool { by, kernel: vec![3], strides: vec![2], pads: vec![(1, 0)], ceil: false };
        case("pool 1-d", &[&[2, 3, 7]], Operation::Pool(line)).check();
    }
}

#[test]
fn reduction_gradients_equal_differences() {
    for by in [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min, Reduction::Product, Reduction::Norm] {
        for (axes, keep) in [(vec![], true), (vec![1], false), (vec![0, 2], true), (vec![0, 1, 2], false)] {
            // A reduction over no axis leaves single elements, of which a norm has a kink at 0.
            case("reduce", &[&[2, 3, 4]], Operation::Reduce { by, axes, keep }).check();
        }
    }
    for axis in 0..3 {
        case("softmax", &[&[2, 3, 4]], Operation::Softmax { axis }).check();
        case("log_softmax", &[&[2, 3, 4]], Operation::LogSoftmax { axis }).check();
        case("cum_sum", &[&[2, 3, 4]], Operation::CumSum { axis }).check();
    }
}

#[test]
fn normalization_gradients_equal_differences() {
    let epsilon = 1e-3;
    case("layer_norm", &[&[2, 3, 5], &[5], &[5]], Operation::LayerNorm { axis: 2, epsilon }).check();
    case("layer_norm without bias", &[&[2, 3, 5], &[3, 5]], Operation::LayerNorm { axis: 1, epsilon }).check();
    case("group_norm", &[&[2, 6, 3, 2], &[6], &[6]], Operation::GroupNorm { groups: 3, epsilon }).check();
    case("instance_norm", &[&[2, 3, 5], &[3], &[3]], Operation::GroupNorm { groups: 3, epsilon }).check();
    let of = &[&[2, 3, 2, 2][..], &[3], &[3], &[3], &[3]];
    case("batch_norm", of, Operation::BatchNorm { epsilon }).offset(1.5).check();
    case("dropout", &[&[3, 4]], Operation::Dropout { rate: 0.5 }).check();
}

#[test]
fn shape_gradients_equal_differences() {
    let fixed = |sizes: &[i64]| sizes.iter().map(|&size| Size::fixed(size)).collect::<Vec<_>>();
    let reshape = Operation::Reshape { to: vec![Some(Size::fixed(3)), None] };
    case("reshape", &[&[2, 3, 2]], reshape).check();
    case("transpose", &[&[2, 3, 4]], Operation::Transpose { order: vec![2, 0, 1] }).check();
    case("expand", &[&[3, 1]], Operation::Expand { to: fixed(&[2, 3, 4]) }).check();
    case("fill", &[&[]], Operation::Fill { shape: fixed(&[2, 3]) }).check();
    case("concat", &[&[2, 3, 2], &[2, 1, 2], &[2, 2, 2]], Operation::Concat { axis: 1 }).check();
    for (start, end, step) in [(0, 2, 1), (-2, 99, 1), (1, 5, 2), (-1, -99, -1), (3, 0, -2)] {
        let slice = Operation::Slice { axis: 1, start: Size::fixed(start), end: Size::fixed(end), step };
        case("slice", &[&[2, 5, 3]], slice).check();
    }
    for with in [Padding::Constant(0.3), Padding::Edge, Padding::Reflect] {
        case("pad", &[&[3, 4]], Operation::Pad { pads: vec![(1, 2), (2, -1)], with }).check();
    }
    for upper in [true, false] {
        case("triangle", &[&[2, 3, 4]], Operation::Triangle { upper, k: 1 }).check();
    }
    case("gather", &[&[4, 3]], Operation::Gather { axis: 0 }).with(ints(&[2, 2], &[1, -1, 1, 0])).check();
    case("gather inner", &[&[2, 4, 3]], Operation::Gather { axis: 1 }).with(ints(&[3], &[3, 0, 3])).check();
    case("gather_elements", &[&[3, 4]], Operation::GatherElements { axis: 1 })
        .with(ints(&[2, 3], &[0, 3, 3, -1, 2, 0]))
        .check();
    for by in [Resampling::Nearest, Resampling::Linear] {
        for coordinates in
            [ResizeCoordinates::HalfPixel, ResizeCoordinates::Asymmetric, ResizeCoordinates::AlignCorners]
        {
            case("resize", &[&[2, 2, 3, 4]], Operation::Resize { to: fixed(&[5, 6]), by, coordinates }).check();
        }
    }
    case(
        "resize 1-d",
        &[&[2, 2, 4]],
        Operation::Resize { to: fixed(&[7]), by: Resampling::Linear, coordinates: ResizeCoordinates::HalfPixel },
    )
    .check();
    case("cast", &[&[3]], Operation::Cast { to: Element::F32 }).check();
}

#[test]
fn recurrence_gradients_equal_differences() {
    for (cell, gates, states) in [(RecurrentCell::Lstm, 4, 2), (RecurrentCell::Gru, 3, 1), (RecurrentCell::Rnn, 1, 1)] {
        for (direction, directions) in [(Direction::Forward, 1), (Direction::Reverse, 1), (Direction::Both, 2)] {
            let hidden = 3;
            let shapes: Vec<Vec<u32>> = vec![
                vec![4, 2, 5],
                vec![directions, gates * hidden, 5],
                vec![directions, gates * hidden, hidden],
                vec![directions, 2 * gates * hidden],
                vec![directions, 2, hidden],
                vec![directions, 2, hidden],
            ];
            for initial in [0, states] {
                let shapes: Vec<&[u32]> = shapes[..4 + initial].iter().map(|shape| &shape[..]).collect();
                case("recurrent", &shapes, Operation::Recurrent(Recurrence { cell, hidden, direction })).check();
            }
        }
    }
}

#[test]
fn integer_operations_equal_known_values() {
    let mut graph = Graph {
        version: Graph::VERSION,
        lengths: None,
        inputs: vec![Input { name: "x".into(), element: Element::F32, shape: vec![Size::BATCH, Size::fixed(2)] }],
        parameters: vec![Parameter { name: "w".into(), shape: vec![2, 2] }],
        constants: vec![],
        nodes: vec![],
        outputs: vec![],
    };
    let operations = [
        (Operation::MatMul, vec![0, 1]),                                                     // 2
        (Operation::ArgMax { axis: 1 }, vec![2]),                                            // 3
        (Operation::Range { start: Size::fixed(0), end: Size::BATCH, step: 1 }, vec![]),     // 4
        (Operation::Comparison(Comparison::Greater), vec![4, 3]),                            // 5
        (Operation::Logic(Logic::Not), vec![5]),                                             // 6
        (Operation::Cast { to: Element::F32 }, vec![6]),                                     // 7
        (Operation::Reshape { to: vec![Some(Size::BATCH), Some(Size::fixed(1))] }, vec![7]), // 8
        (Operation::Arithmetic(Arithmetic::Mul), vec![2, 8]),                                // 9
    ];
    graph.nodes = operations
        .into_iter()
        .map(|(operation, inputs)| Node {
            name: String::new(),
            operation,
            inputs: inputs.into_iter().map(ValueId).collect(),
        })
        .collect();
    graph.outputs.push(Output { name: "y".into(), value: ValueId(9) });
    let model = Arc::new(GraphModel::new(graph, Loss::CROSS_ENTROPY).unwrap());
    let mut executor = Executor::new(Arc::clone(&model));
    executor.prepare(Point { batch: 2, length: 1 }).unwrap();
    *executor.input(0).unwrap() = super::tensor::Tensor::F32(vec![1.0, 2.0, 3.0, 4.0]);
    executor.set_parameters(&[1.0, 0.0, 0.0, 1.0]);
    executor.forward(None).unwrap();
    // Both rows have their maximum at 1; 0 > 1 and 1 > 1 are false.
    assert_eq!(executor.value(model.output()), [1.0, 2.0, 3.0, 4.0]);
}

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

pub(super) fn mlp_graph(mlp: &Mlp) -> Architecture {
    let mut draft = Draft::new(&Architecture::Mlp(mlp.clone()), rows(mlp.inputs.into()));
    let mut x = draft.affine(0, 1);
    for layer in 1..=mlp.hidden.len() {
        x = draft.relu(x);
        x = draft.affine(x, 1 + 2 * u32::try_from(layer).unwrap());
    }
    draft.end(x, Loss::CROSS_ENTROPY)
}

pub(super) fn cnn_graph(cnn: &Cnn) -> Architecture {
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
    assert!(wrong(none).contains("1 inputs (x), not 0"), "{}", wrong(none));
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
