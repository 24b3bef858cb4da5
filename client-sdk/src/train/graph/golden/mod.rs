//! Operations against PyTorch: `pytorch.txt`, which `pytorch.py` prints.

mod adapters;
mod speed;

use graph::{
    Activation, Convolution, Direction, Graph, Input, Node, Operation, Output, Padding, Parameter, Point, Pool,
    PoolKind, Recurrence, RecurrentCell, Reduction, Resampling, ResizeCoordinates, Size, ValueId, infer,
};

use super::context::{Context, Gradients, Statistics};
use super::ops::{self, Done};
use super::tensor::{Operand, Tensor};

/// The numbers of `pytorch.py`.
fn numbers(count: usize, seed: u64, offset: f32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = ((state >> 40) as f32 / 8_388_608.0) - 1.0;
        unit + 0.05 * unit.signum()
    };
    (0..count).map(|_| next() + offset).collect()
}

/// The weighted sum of numbers, and that of their magnitudes.
fn weighted(values: &[f32], seed: u64) -> (f64, f64) {
    let terms = || values.iter().zip(numbers(values.len(), seed, 0.0)).map(|(a, b)| f64::from(*a) * f64::from(b));
    (terms().sum(), terms().map(f64::abs).sum())
}

/// The operation as a graph, whose parameters are its inputs.
fn graph(operation: &Operation, inputs: &[Vec<u32>]) -> Graph {
    let parameters = inputs.iter().map(|shape| Parameter { name: String::new(), shape: shape.clone() });
    let ids = (1..).map(ValueId).take(inputs.len()).collect();
    let mut graph = Graph {
        version: Graph::VERSION,
        lengths: None,
        inputs: vec![Input { name: String::new(), element: graph::Element::F32, shape: vec![Size::BATCH] }],
        parameters: parameters.collect(),
        constants: vec![],
        nodes: vec![Node { name: String::new(), operation: operation.clone(), inputs: ids }],
        outputs: vec![],
    };
    graph.outputs.push(Output { name: String::new(), value: graph.input(0) });
    graph
}

/// Compares result and gradients with a line of the file.
fn check(name: &str, inputs: &[Vec<u32>], offset: f32, operation: &Operation) {
    let line = include_str!("pytorch.txt").lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
    let expected: Vec<f64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
    assert_eq!(expected.len(), 1 + inputs.len(), "{name}");
    let (graph, point) = (graph(operation, inputs), Point { batch: 1, length: 1 });
    let shapes = infer(&graph, point).unwrap();
    let all = shapes.all();
    let tensors: Vec<_> = (0..inputs.len())
        .map(|input| {
            let scale =
                if matches!(operation, Operation::Activation(kind) if *kind != Activation::Log) { 4.0 } else { 1.0 };
            let values = numbers(all[1 + input].elements(), 3 + input as u64, offset);
            Tensor::F32(values.into_iter().map(|value| scale * value).collect())
        })
        .collect();
    let operand = |input: usize| Operand { shape: &all[1 + input].shape, tensor: &tensors[input] };
    let operands: Vec<_> = (0..inputs.len()).map(operand).collect();
    let result_types = &all[1 + inputs.len()..];
    let result_shapes: Vec<_> = result_types.iter().map(|kind| &kind.shape[..]).collect();
    let mut results: Vec<_> = result_types.iter().map(Tensor::zeros).collect();
    let mut context = Context::new();
    context.statistics = Statistics::Batch;
    let mut saved = Vec::new();
    ops::forward(operation, &operands, &result_shapes, &mut results, &mut saved, &mut context).unwrap();
    let dy = numbers(results[0].f32().len(), 50, 0.0);
    let mut d_results = vec![&dy[..]];
    d_results.resize(results.len(), &[]);
    let outcomes: Vec<_> =
        results.iter().zip(&result_shapes).map(|(tensor, shape)| Operand { shape, tensor }).collect();
    // What an earlier pass left does not count.
    let mut gradients: Vec<_> = tensors.iter().map(|tensor| vec![f32::NAN; tensor.f32().len()]).collect();
    let mut begun = vec![false; inputs.len()];
    let done = Done { inputs: &operands, results: &outcomes, d_results: &d_results, saved: &saved };
    let order: Vec<_> = (0..inputs.len()).collect();
    let mut targets = Gradients { all: &mut gradients, begun: &mut begun, inputs: &order };
    ops::backward(operation, &done, &mut targets, &mut context);
    // Running statistics have no gradient.
    for (gradient, _) in gradients.iter_mut().zip(&begun).filter(|(_, is_begun)| !**is_begun) {
        gradient.fill(0.0);
    }
    let is_scaled = matches!(operation, Operation::Activation(kind) if *kind != Activation::Log);
    let scale = if is_scaled { 4.0 } else { 1.0 };
    let close = |device: &str, result: &[f32], gradients: &[Vec<f32>], most: f64| {
        let of_gradients = gradients.iter().enumerate().map(|(input, values)| {
            let (sum, magnitude) = weighted(values, 70 + input as u64);
            (scale * sum, scale * magnitude)
        });
        let found = std::iter::once(weighted(result, 50)).chain(of_gradients);
        for (number, ((found, magnitude), expected)) in found.zip(&expected).enumerate() {
            let error = (found - expected).abs() / magnitude.max(expected.abs()).max(1e-3);
            assert!(error < most, "{name} on {device}: sum {number} is {found}, PyTorch's {expected}");
        }
    };
    close("the CPU", results[0].f32(), &gradients, 2e-6);
    #[cfg(feature = "candle")]
    if graph.batch_statistics().is_empty() {
        let parameters: Vec<f32> = tensors.iter().flat_map(Tensor::f32).copied().collect();
        let (inputs, of) = ([Tensor::F32(vec![0.0])], graph.first_result());
        let (result, gradients) = super::candle::tests::computed(&graph, &inputs, &parameters, point, (of, &dy), None);
        close("candle", &result, &gradients, 1e-5);
    }
}

fn convolution(strides: &[u32], pads: &[u32], dilations: &[u32], groups: u32) -> Convolution {
    let pads = pads.iter().map(|&pad| (pad, pad)).collect();
    Convolution { strides: strides.to_vec(), pads, dilations: dilations.to_vec(), groups }
}

fn lists(shapes: &[&[u32]]) -> Vec<Vec<u32>> {
    shapes.iter().map(|shape| shape.to_vec()).collect()
}

#[test]
fn convolutions_equal_pytorch() {
    for (name, shapes, conv) in [
        ("conv", lists(&[&[2, 3, 7, 6], &[4, 3, 3, 2], &[4]]), convolution(&[2, 1], &[1, 0], &[1, 2], 1)),
        ("conv_grouped", lists(&[&[2, 4, 6, 7], &[6, 2, 3, 3], &[6]]), convolution(&[2, 3], &[1, 1], &[1, 1], 2)),
        ("conv_depthwise", lists(&[&[2, 4, 5, 6], &[8, 1, 3, 3], &[8]]), convolution(&[1, 1], &[1, 1], &[1, 1], 4)),
        ("conv_line", lists(&[&[3, 2, 9], &[4, 2, 3], &[4]]), convolution(&[2], &[2], &[2], 1)),
    ] {
        check(name, &shapes, 0.0, &Operation::Conv(conv));
    }
    let of = convolution(&[2, 3], &[1, 0], &[1, 2], 2);
    let operation = Operation::ConvTranspose { of, output_padding: vec![1, 0] };
    check("conv_transpose", &lists(&[&[2, 4, 3, 4], &[4, 3, 3, 2], &[6]]), 0.0, &operation);
    let operation = Operation::ConvTranspose { of: convolution(&[3], &[1], &[1], 1), output_padding: vec![2] };
    check("conv_transpose_line", &lists(&[&[2, 3, 5], &[3, 2, 4], &[2]]), 0.0, &operation);
    for (name, by) in [
        ("max_pool", PoolKind::Max),
        ("mean_pool", PoolKind::Mean),
        ("mean_pool_with_padding", PoolKind::MeanWithPadding),
    ] {
        let pool = Pool { by, kernel: vec![3, 3], strides: vec![2, 2], pads: vec![(1, 1); 2], ceil: true };
        check(name, &lists(&[&[2, 2, 6, 7]]), 0.0, &Operation::Pool(pool));
    }
}

#[test]
fn normalizations_equal_pytorch() {
    let epsilon = 1e-3;
    let layer = lists(&[&[2, 3, 5], &[3, 5], &[3, 5]]);
    check("layer_norm", &layer, 0.0, &Operation::LayerNorm { axis: 1, epsilon });
    let group = lists(&[&[2, 6, 3, 2], &[6], &[6]]);
    check("group_norm", &group, 0.0, &Operation::GroupNorm { groups: 3, epsilon });
    let batch = lists(&[&[2, 3, 2, 2], &[3], &[3], &[3], &[3]]);
    check("batch_norm", &batch, 1.5, &Operation::BatchNorm { epsilon, momentum: None });
    check("batch_norm_by_batch", &batch, 1.5, &Operation::BatchNorm { epsilon, momentum: Some(0.1) });
    let rows = lists(&[&[5, 3], &[3], &[3], &[3], &[3]]);
    check("batch_norm_of_rows", &rows, 1.5, &Operation::BatchNorm { epsilon, momentum: Some(0.1) });
    let x = lists(&[&[2, 3, 4]]);
    check("softmax", &x, 0.0, &Operation::Softmax { axis: 1 });
    check("log_softmax", &x, 0.0, &Operation::LogSoftmax { axis: 1 });
    check("cum_sum", &x, 0.0, &Operation::CumSum { axis: 1 });
    check("norm", &x, 0.0, &Operation::Reduce { by: Reduction::Norm, axes: vec![0, 2], keep: false });
    check("product", &x, 0.0, &Operation::Reduce { by: Reduction::Product, axes: vec![1], keep: false });
}

#[test]
fn activations_equal_pytorch() {
    for (name, activation) in [
        ("erf", Activation::Erf),
        ("tanh", Activation::Tanh),
        ("sigmoid", Activation::Sigmoid),
        ("exp", Activation::Exp),
        ("sin", Activation::Sin),
        ("cos", Activation::Cos),
        ("elu", Activation::Elu { alpha: 0.7 }),
        ("gelu", Activation::Gelu),
        ("softplus", Activation::Softplus),
        ("gelu_tanh", Activation::GeluTanh),
        ("hard_sigmoid", Activation::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 }),
        ("hard_swish", Activation::HardSwish),
        ("leaky_relu", Activation::LeakyRelu { alpha: 0.1 }),
    ] {
        check(name, &lists(&[&[5, 7]]), 0.0, &Operation::Activation(activation));
    }
    check("log", &lists(&[&[5, 7]]), 2.5, &Operation::Activation(Activation::Log));
}

#[test]
fn products_and_shapes_equal_pytorch() {
    check("matmul", &lists(&[&[2, 1, 3, 4], &[3, 4, 2]]), 0.0, &Operation::MatMul);
    let gemm = Operation::Gemm { transpose_a: true, transpose_b: true, alpha: 0.7, beta: -1.3 };
    check("gemm", &lists(&[&[4, 3], &[5, 4], &[3, 1]]), 0.0, &gemm);
    let pad = Operation::Pad { pads: vec![(0, 0), (0, 0), (2, 1)], with: Padding::Reflect };
    check("reflect", &lists(&[&[1, 3, 4]]), 0.0, &pad);
    for (name, to, by, coordinates) in [
        ("resize_half_pixel", [5, 3], Resampling::Linear, ResizeCoordinates::HalfPixel),
        ("resize_corners", [5, 6], Resampling::Linear, ResizeCoordinates::AlignCorners),
        ("resize_nearest", [5, 6], Resampling::Nearest, ResizeCoordinates::Asymmetric),
    ] {
        let to = to.map(Size::fixed).to_vec();
        check(name, &lists(&[&[2, 2, 3, 4]]), 0.0, &Operation::Resize { to, by, coordinates });
    }
}

#[test]
fn recurrences_equal_pytorch() {
    for (name, cell, gates, states) in
        [("lstm", RecurrentCell::Lstm, 4, 2), ("gru", RecurrentCell::Gru, 3, 1), ("rnn", RecurrentCell::Rnn, 1, 1)]
    {
        let mut shapes = lists(&[&[4, 2, 5], &[2, gates * 3, 5], &[2, gates * 3, 3], &[2, 6 * gates]]);
        shapes.resize(4 + states, vec![2, 2, 3]);
        let operation = Operation::Recurrent(Recurrence { cell, hidden: 3, direction: Direction::Both });
        check(name, &shapes, 0.0, &operation);
    }
}
