//! Gradients of every operation against finite differences.

use std::sync::Arc;

use graph::{
    Activation, Arithmetic, Comparison, Constant, Convolution, Direction, Element, Graph, GraphError, GraphModel,
    Input, Logic, Loss, Node, Operation, Output, Padding, Parameter, Point, Pool, PoolKind, Recurrence, RecurrentCell,
    Reduction, Resampling, ResizeCoordinates, Size, ValueId, Values,
};

use super::context::Statistics;
use super::executor::Executor;

mod frozen;
mod interrupted;
mod models;
mod statistics;

pub(super) use self::models::{cnn_graph, mlp_graph};

/// A graph of one input `x`, parameters, constants and nodes; its output is the last node's first result.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) parameters: Vec<Vec<u32>>,
    pub(super) constants: Vec<Constant>,
    pub(super) nodes: Vec<(Operation, Vec<u32>)>,
    /// Added to each parameter, to stay where a function is smooth.
    pub(super) offset: f32,
}

pub(super) fn case(name: &'static str, parameters: &[&[u32]], operation: Operation) -> Case {
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

pub(super) fn ints(shape: &[u32], values: &[i64]) -> Constant {
    Constant { name: String::new(), shape: shape.to_vec(), values: Values::I64(values.to_vec()) }
}

impl Case {
    pub(super) fn offset(self, offset: f32) -> Self {
        Self { offset, ..self }
    }

    /// With a constant after the parameters, as the operation's last input.
    pub(super) fn with(mut self, constant: Constant) -> Self {
        let number = u32::try_from(1 + self.parameters.len() + self.constants.len()).unwrap();
        self.constants.push(constant);
        self.nodes[0].1.push(number);
        self
    }

    /// The graph: the result is weighted by fixed numbers and reshaped to one row for each example of a batch of 1.
    pub(super) fn model(&self) -> Arc<GraphModel> {
        self.checked().unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// The same, if the operation fits its inputs.
    pub(super) fn checked(&self) -> Result<Arc<GraphModel>, GraphError> {
        let nodes = self.nodes.iter().map(|(operation, inputs)| Node {
            name: String::new(),
            operation: operation.clone(),
            inputs: inputs.iter().map(|&input| ValueId(input)).collect(),
        });
        let mut graph = Graph {
            version: Graph::LATEST,
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
        GraphModel::new(graph, Loss::Mse).map(Arc::new)
    }

    /// Parameters away from kinks.
    pub(super) fn start(&self) -> Vec<f32> {
        let size = self.parameters.iter().map(|shape| shape.iter().product::<u32>() as usize).sum();
        numbers(size, 3).iter().map(|number| number + self.offset).collect()
    }

    /// Compares candle with the CPU at these parameters. Batch statistics are computed on the CPU alone.
    #[cfg(feature = "candle")]
    pub(super) fn compare(&self, start: &[f32], dropout: Option<u64>) {
        if !self.model().graph().batch_statistics().is_empty() {
            return;
        }
        let (inputs, point) = ([super::tensor::Tensor::F32(vec![1.0])], Point { batch: 1, length: 1 });
        super::candle::tests::compare(&self.model(), &inputs, start, point, dropout, self.name);
    }

    /// Compares each parameter's gradient with central differences, in random directions of the output.
    fn check(&self) {
        let model = self.model();
        let mut executor = Executor::new(Arc::clone(&model));
        executor.normalize_by(Statistics::Batch);
        let shapes = executor.prepare(Point { batch: 1, length: 1 }).unwrap();
        let count = shapes.elements(model.output());
        let start = self.start();
        let size = start.len();
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
        executor.backward(model.output(), &weights, &mut gradient).unwrap();
        let largest = differences.iter().fold(0.1_f64, |largest, value| largest.max(value.abs()));
        for (index, (found, expected)) in gradient.iter().zip(&differences).enumerate() {
            let error = (f64::from(*found) - expected).abs() / largest;
            assert!(error < 4e-3, "{}: parameter {index}: {found}, and differences give {expected}", self.name);
        }
        assert!(gradient.iter().any(|value| *value != 0.0), "{}: the gradient is 0", self.name);
        #[cfg(feature = "candle")]
        self.compare(&start, None);
    }
}

/// Repeatable numbers between -1 and 1, away from 0 and from each other.
pub(super) fn numbers(count: usize, seed: u64) -> Vec<f32> {
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
    // Enough channels to be computed in place.
    for (conv, x, weights) in [
        (convolution([1, 1], [(1, 1), (1, 1)], [1, 1], 1), [2, 8, 3, 4], [9, 8, 3, 3]),
        (convolution([1, 1], [(1, 0), (0, 2)], [2, 1], 1), [1, 9, 5, 4], [8, 9, 2, 3]),
        (convolution([2, 1], [(1, 0), (0, 1)], [1, 1], 1), [2, 2, 6, 3], [17, 2, 3, 2]),
        (convolution([1, 1], [(2, 1), (3, 2)], [1, 1], 1), [1, 8, 3, 3], [8, 8, 2, 2]),
        (convolution([1, 2], [(0, 0), (1, 0)], [1, 1], 2), [2, 4, 4, 4], [18, 2, 2, 3]),
    ] {
        case("conv in place", &[&x, &weights, &weights[..1]], Operation::Conv(conv)).check();
    }
    let line = Convolution { strides: vec![1], pads: vec![(1, 1)], dilations: vec![1], groups: 1 };
    case("conv in place 1-d", &[&[2, 8, 6], &[9, 8, 3], &[9]], Operation::Conv(line)).check();
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
    case("batch_norm", of, Operation::BatchNorm { epsilon, momentum: None }).offset(1.5).check();
    case("batch_norm by the batch", of, Operation::BatchNorm { epsilon, momentum: Some(0.1) }).offset(1.5).check();
    let flat = &[&[5, 3][..], &[3], &[3], &[3], &[3]];
    case("batch_norm of rows", flat, Operation::BatchNorm { epsilon, momentum: Some(0.1) }).check();
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
    #[cfg(feature = "candle")]
    {
        let inputs = [super::tensor::Tensor::F32(vec![1.0, 2.0, 3.0, 4.0])];
        let point = Point { batch: 2, length: 1 };
        super::candle::tests::compare(&model, &inputs, &[1.0, 0.0, 0.0, 1.0], point, None, "integers");
    }
}
