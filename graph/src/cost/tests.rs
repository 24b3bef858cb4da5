//! Costs against counts by hand, and the limits.

use crate::{
    Convolution, Direction, Element, Graph, GraphError, Input, MAX_MEMORY, MAX_MULTIPLY_ADDS, Node, Operation, Output,
    Parameter, Point, Pool, PoolKind, Recurrence, RecurrentCell, Size, ValueId, cost, depends_on_parameters,
    depends_on_trained, infer,
};

/// A graph of one operation on a float input `[batch, …]` (value 0) and parameters (values from 1 on).
fn graph(input: &[i64], parameters: &[&[u32]], operation: Operation) -> Graph {
    let sizes = std::iter::once(Size::BATCH).chain(input.iter().map(|&size| Size::fixed(size)));
    let parameter = |(number, shape): (usize, &&[u32])| Parameter { name: format!("p{number}"), shape: shape.to_vec() };
    let mut reads = vec![ValueId(0)];
    reads.extend((1..).take(parameters.len()).map(ValueId));
    let mut graph = Graph {
        version: Graph::VERSION,
        lengths: None,
        inputs: vec![Input { name: "x".to_owned(), element: Element::F32, shape: sizes.collect() }],
        parameters: parameters.iter().enumerate().map(parameter).collect(),
        constants: Vec::new(),
        nodes: vec![Node { name: "first".to_owned(), operation, inputs: reads }],
        outputs: Vec::new(),
    };
    graph.outputs.push(Output { name: "y".to_owned(), value: graph.first_result() });
    graph
}

fn at(graph: &Graph, batch: u32) -> crate::Cost {
    cost(graph, &infer(graph, Point { batch, length: 1 }).unwrap())
}

fn conv(groups: u32) -> Operation {
    Operation::Conv(Convolution { strides: vec![1, 1], pads: vec![(1, 1); 2], dilations: vec![1, 1], groups })
}

#[test]
fn product_costs_rows_times_inner_times_columns() {
    let found = at(&graph(&[200], &[&[200, 30]], Operation::MatMul), 10);
    assert_eq!(found.forward, 10 * 200 * 30);
    // The input needs no gradient.
    assert_eq!(found.multiply_adds, 2 * found.forward);
    let values = 10 * 200 + 200 * 30 + 10 * 30;
    let gradients = 200 * 30 + 10 * 30;
    let output = 10 * 30;
    let scratch = 200 * 30 + 2 * 200 * 32;
    assert_eq!(found.memory, 4 * (values + gradients + output + scratch));
}

#[test]
fn convolution_costs_each_window() {
    let dense = at(&graph(&[16, 28, 28], &[&[32, 16, 3, 3], &[32]], conv(1)), 4);
    assert_eq!(dense.forward, 4 * 32 * 28 * 28 * 16 * 9);
    let depthwise = at(&graph(&[16, 28, 28], &[&[16, 1, 3, 3]], conv(16)), 4);
    assert_eq!(depthwise.forward, 4 * 16 * 28 * 28 * 9);
    let of = Convolution { strides: vec![2, 2], pads: vec![(0, 0); 2], dilations: vec![1, 1], groups: 1 };
    let transposed = Operation::ConvTranspose { of, output_padding: vec![0, 0] };
    let transposed = at(&graph(&[16, 7, 7], &[&[16, 8, 2, 2]], transposed), 4);
    assert_eq!(transposed.forward, 4 * 16 * 7 * 7 * 8 * 4);
}

#[test]
fn recurrence_costs_its_products_at_each_position() {
    let recurrence = Recurrence { cell: RecurrentCell::Lstm, hidden: 64, direction: Direction::Both };
    let weights: [&[u32]; 3] = [&[2, 256, 32], &[2, 256, 64], &[2, 512]];
    let mut graph = graph(&[5, 32], &weights, Operation::Recurrent(recurrence));
    // [batch, length, inputs] to [length, batch, inputs] and back.
    let node = graph.nodes[0].clone();
    let swap = Operation::Transpose { order: vec![1, 0, 2] };
    graph.nodes[0] = Node { name: String::new(), operation: swap, inputs: vec![ValueId(0)] };
    graph.nodes.push(Node { inputs: [4, 1, 2, 3].map(ValueId).to_vec(), ..node });
    let back = Operation::Transpose { order: vec![2, 0, 1, 3] };
    graph.nodes.push(Node { name: String::new(), operation: back, inputs: vec![ValueId(5)] });
    graph.outputs[0].value = ValueId(8);
    let found = at(&graph, 3);
    let products = 2 * 5 * 3 * 256 * (32 + 64);
    assert!((products..products + products / 20).contains(&found.forward), "{} {products}", found.forward);
    let step = products + 2 * 5 * 3 * 256 * (32 + 2 * 64);
    assert!((step..step + step / 20).contains(&found.multiply_adds), "{} {step}", found.multiply_adds);
}

#[test]
fn operation_without_parameters_has_no_backward_pass() {
    let mut graph = graph(&[50], &[&[50]], Operation::Softmax { axis: 1 });
    graph.nodes[0].inputs.truncate(1);
    let found = at(&graph, 2);
    assert_eq!(found.forward, found.multiply_adds);
    // Input, result, parameter with its gradient, gradient of the output, and the rows of the backward pass.
    assert_eq!(found.memory, 4 * (100 + 100 + 50 + 50 + 100 + 100));
}

#[test]
fn only_values_after_a_trained_parameter_depend_on_it() {
    // x W, and the sum of that with b.
    let mut graph = graph(&[200], &[&[200, 30], &[30]], Operation::MatMul);
    graph.nodes[0].inputs.truncate(2);
    let sum = Operation::Arithmetic(crate::Arithmetic::Add);
    graph.nodes.push(Node { name: String::new(), operation: sum, inputs: [3, 2].map(ValueId).to_vec() });
    let shapes = infer(&graph, Point { batch: 4, length: 1 }).unwrap();
    assert_eq!(depends_on_trained(&graph, &shapes, &[false, true]), [false, false, true, false, true]);
    assert_eq!(depends_on_trained(&graph, &shapes, &[true, false]), [false, true, false, true, true]);
    assert_eq!(depends_on_trained(&graph, &shapes, &[]), [false; 5]);
    assert_eq!(depends_on_parameters(&graph, &shapes), [false, true, true, true, true]);
}

#[test]
fn integers_and_masks_count_their_bytes() {
    let cast = |to| {
        let mut graph = graph(&[8], &[&[8]], Operation::Cast { to });
        graph.nodes[0].inputs.truncate(1);
        at(&graph, 1).memory
    };
    assert_eq!(cast(Element::I64) - cast(Element::Bool), 8 * 7 * 2, "the value, and the gradient of the loss");
    let dropout = |rate| {
        let mut graph = graph(&[8], &[&[8]], Operation::Dropout { rate });
        graph.nodes[0].inputs.truncate(1);
        at(&graph, 1).memory
    };
    assert_eq!(dropout(0.5), 4 * (8 + 8 + 8 + 8 + 8 + 8));
}

#[test]
fn window_that_takes_years_is_rejected_by_name() {
    let side = 1 << 13;
    let pool = Pool {
        by: PoolKind::Max,
        kernel: vec![side, side],
        strides: vec![1, 1],
        pads: vec![(side / 2, side / 2); 2],
        ceil: false,
    };
    let mut large = graph(&[1, side.into(), side.into()], &[&[1]], Operation::Pool(pool));
    large.nodes[0].inputs.truncate(1);
    let error = large.check().unwrap_err();
    assert!(matches!(&error, GraphError::Node { number: 0, name, .. } if name == "first"), "{error}");
    assert!(error.to_string().contains("at most 1099511627776 for each example"), "{error}");
    let depthwise = conv(2);
    let Operation::Conv(of) = &depthwise else { unreachable!() };
    let of = Convolution { pads: vec![(2048, 2047); 2], ..of.clone() };
    let large = graph(&[2, 4096, 4096], &[&[2, 1, 4096, 4096]], Operation::Conv(of));
    // Windows of 2^24 numbers at 2^24 places exceed the limit of one window matrix.
    assert!(large.check().is_err());
}

#[test]
fn multiply_adds_are_allowed_for_each_example() {
    // 2^13 by 2^13 for 2^13 positions: 2^39 forward, as many for the gradient of the parameter.
    let side = 1_u32 << 13;
    let within = graph(&[side.into(), side.into()], &[&[side, side]], Operation::MatMul);
    assert_eq!(at(&within, 1).multiply_adds, MAX_MULTIPLY_ADDS);
    assert_eq!(at(&within, 2).multiply_adds, 2 * MAX_MULTIPLY_ADDS);
    let above = graph(&[i64::from(side) + 1, side.into()], &[&[side, side]], Operation::MatMul);
    assert!(above.check().unwrap_err().to_string().contains("node 0 (mat_mul, first): takes"));
}

#[test]
fn memory_counts_gradients_before_allocation() {
    // A value of 2^27 bytes for each example.
    let graph = graph(&[1 << 25], &[&[1]], Operation::Arithmetic(crate::Arithmetic::Mul));
    assert!(graph.check().is_ok());
    // Input, result, its gradient, and the gradient of the loss.
    let most = u32::try_from(MAX_MEMORY >> 27).unwrap() / 4;
    assert!(at(&graph, most - 1).memory <= MAX_MEMORY);
    let error = infer(&graph, Point { batch: most, length: 1 }).unwrap_err().to_string();
    assert!(error.contains("at most 4294967296 are allowed: choose a smaller batch"), "{error}");
}

#[test]
fn batch_statistics_are_saved() {
    let norm = |momentum| Operation::BatchNorm { epsilon: 1e-5, momentum };
    let at = |momentum| at(&graph(&[6, 5], &[&[6_u32][..]; 4], norm(momentum)), 4);
    let (frozen, by_batch) = (at(None), at(Some(0.1)));
    assert_eq!((frozen.forward, by_batch.forward), (4 * 30, 4 * 4 * 30));
    // Mean, inverse deviation and variance, and sums of 64 bits.
    assert_eq!(by_batch.memory - frozen.memory, 6 * (12 + 24 - 16));
}
