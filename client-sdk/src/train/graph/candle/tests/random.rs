//! Random operations and graphs on both executors.

use std::sync::Arc;

use graph::{
    Activation, Arithmetic, Comparison, Constant, Convolution, Direction, Element, Graph, GraphModel, Input, Loss,
    Node, Operation, Output, Padding, Parameter, Point, Pool, PoolKind, Recurrence, RecurrentCell, Reduction,
    Resampling, ResizeCoordinates, Size, ValueId, Values,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::compare;
use crate::train::graph::tensor::Tensor as Elements;
use crate::train::graph::tests::{Case, case, ints, numbers};

/// Draws of attributes and shapes.
struct Draws(ChaCha8Rng);

impl Draws {
    fn up_to(&mut self, least: u32, most: u32) -> u32 {
        self.0.random_range(least..=most)
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.0.random_range(0..of.len())].clone()
    }

    fn coin(&mut self) -> bool {
        self.0.random()
    }

    fn shape(&mut self, least: u32, most: u32) -> Vec<u32> {
        let rank = self.up_to(least, most);
        (0..rank).map(|_| self.up_to(1, 5)).collect()
    }

    /// A shape that broadcasts with another one.
    fn broadcast(&mut self, shape: &[u32]) -> Vec<u32> {
        let from = self.up_to(0, count(shape)) as usize;
        shape[from..].iter().map(|&size| if self.coin() { size } else { 1 }).collect()
    }

    /// Sizes for one or two spatial axes.
    fn spatial(&mut self, axes: usize, least: u32, most: u32) -> Vec<u32> {
        (0..axes).map(|_| self.up_to(least, most)).collect()
    }

    fn pads(&mut self, axes: usize, most: u32) -> Vec<(u32, u32)> {
        (0..axes).map(|_| (self.up_to(0, most), self.up_to(0, most))).collect()
    }

    fn convolution(&mut self, axes: usize) -> Convolution {
        Convolution {
            strides: self.spatial(axes, 1, 3),
            pads: self.pads(axes, 2),
            dilations: self.spatial(axes, 1, 2),
            groups: self.up_to(1, 3),
        }
    }
}

/// Number of elements.
fn count<T>(of: &[T]) -> u32 {
    u32::try_from(of.len()).unwrap()
}

/// An operation on parameters of these shapes.
fn of(name: &'static str, shapes: &[Vec<u32>], operation: Operation) -> Case {
    let shapes: Vec<&[u32]> = shapes.iter().map(|shape| &shape[..]).collect();
    case(name, &shapes, operation)
}

fn convolution(draws: &mut Draws) -> Case {
    let axes = draws.up_to(1, 2) as usize;
    let conv = draws.convolution(axes);
    let (channels, outputs) = (draws.up_to(1, 3), draws.up_to(1, 3));
    let (groups, kernel) = (conv.groups, draws.spatial(axes, 1, 3));
    let x = [vec![draws.up_to(1, 3), channels * groups], draws.spatial(axes, 3, 8)].concat();
    let mut shapes = vec![x];
    let operation = if draws.coin() {
        shapes.push([vec![outputs * groups, channels], kernel].concat());
        Operation::Conv(conv)
    } else {
        shapes.push([vec![channels * groups, outputs], kernel].concat());
        let most = |axis: usize| conv.strides[axis].max(conv.dilations[axis]) - 1;
        let output_padding = (0..axes).map(|axis| draws.up_to(0, most(axis))).collect();
        Operation::ConvTranspose { of: conv, output_padding }
    };
    if draws.coin() {
        shapes.push(vec![outputs * groups]);
    }
    of("convolution", &shapes, operation)
}

fn pool(draws: &mut Draws) -> Case {
    let axes = draws.up_to(1, 2) as usize;
    let pool = Pool {
        by: draws.one(&[PoolKind::Max, PoolKind::Mean, PoolKind::MeanWithPadding]),
        kernel: draws.spatial(axes, 1, 4),
        strides: draws.spatial(axes, 1, 3),
        pads: draws.pads(axes, 2),
        ceil: draws.coin(),
    };
    let x = [vec![draws.up_to(1, 2), draws.up_to(1, 3)], draws.spatial(axes, 2, 8)].concat();
    of("pool", &[x], Operation::Pool(pool))
}

fn reduction(draws: &mut Draws) -> Case {
    let x = draws.shape(1, 4);
    let axis = draws.up_to(0, count(&x) - 1);
    let by = draws.one(&[
        Reduction::Sum,
        Reduction::Mean,
        Reduction::Max,
        Reduction::Min,
        Reduction::Product,
        Reduction::Norm,
    ]);
    let axes = (0..count(&x)).filter(|_| draws.coin()).collect();
    let operation = match draws.up_to(0, 3) {
        0 => Operation::Softmax { axis },
        1 => Operation::LogSoftmax { axis },
        2 => Operation::CumSum { axis },
        _ => Operation::Reduce { by, axes, keep: draws.coin() },
    };
    of("reduction", &[x], operation)
}

fn normalization(draws: &mut Draws) -> Case {
    let epsilon = 1e-2;
    let x = [vec![2, 6], draws.shape(1, 2)].concat();
    let axis = draws.up_to(1, count(&x) - 1);
    match draws.up_to(0, 2) {
        0 => {
            let scale = x[axis as usize..].to_vec();
            let mut shapes = vec![x, scale.clone()];
            if draws.coin() {
                shapes.push(scale);
            }
            of("layer_norm", &shapes, Operation::LayerNorm { axis, epsilon })
        }
        1 => {
            let groups = draws.one(&[1, 2, 3, 6]);
            of("group_norm", &[x, vec![6], vec![6]], Operation::GroupNorm { groups, epsilon })
        }
        _ => {
            let shapes = [x, vec![6], vec![6], vec![6], vec![6]];
            of("batch_norm", &shapes, Operation::BatchNorm { epsilon, momentum: None }).offset(1.5)
        }
    }
}

fn elementwise(draws: &mut Draws) -> Case {
    let x = draws.shape(0, 4);
    let y = draws.broadcast(&x);
    let kinds = [Arithmetic::Add, Arithmetic::Sub, Arithmetic::Mul, Arithmetic::Min, Arithmetic::Max];
    let positive = [Arithmetic::Div, Arithmetic::Pow, Arithmetic::Mod];
    let shapes = if draws.coin() { [x, y] } else { [y, x] };
    match draws.up_to(0, 2) {
        0 => of("arithmetic", &shapes, Operation::Arithmetic(draws.one(&kinds))),
        1 => of("division", &shapes, Operation::Arithmetic(draws.one(&positive))).offset(2.0),
        _ => {
            let condition = draws.broadcast(&shapes[0]);
            let values = (0..condition.iter().product::<u32>()).map(|_| draws.coin()).collect();
            let condition = Constant { name: String::new(), shape: condition, values: Values::Bool(values) };
            let mut choice = of("where", &shapes, Operation::Where).with(condition);
            choice.nodes[0].1 = vec![3, 1, 2];
            choice
        }
    }
}

fn product(draws: &mut Draws) -> Case {
    let [rows, inner, columns] = [0; 3].map(|_| draws.up_to(1, 5));
    let batch = draws.shape(0, 2);
    let other = draws.broadcast(&batch);
    let shapes = [[batch, vec![rows, inner]].concat(), [other, vec![inner, columns]].concat()];
    match draws.up_to(0, 3) {
        0 => of("vector", &[vec![inner], shapes[1].clone()], Operation::MatMul),
        1 => of("matrices", &shapes, Operation::MatMul),
        _ => {
            let (transpose_a, transpose_b) = (draws.coin(), draws.coin());
            let a = if transpose_a { vec![inner, rows] } else { vec![rows, inner] };
            let b = if transpose_b { vec![columns, inner] } else { vec![inner, columns] };
            let (c, alpha, beta) = (draws.broadcast(&[rows, columns]), draws.one(&[1.0, 0.7]), draws.one(&[1.0, -1.3]));
            of("gemm", &[a, b, c], Operation::Gemm { transpose_a, transpose_b, alpha, beta })
        }
    }
}

fn selection(draws: &mut Draws) -> Case {
    let x = draws.shape(1, 4);
    let axis = draws.up_to(0, count(&x) - 1);
    let size = i64::from(x[axis as usize]);
    match draws.up_to(0, 2) {
        0 => {
            let positions = draws.shape(0, 2);
            let values: Vec<i64> =
                (0..positions.iter().product::<u32>()).map(|_| draws.0.random_range(-size..size)).collect();
            of("gather", &[x], Operation::Gather { axis }).with(ints(&positions, &values))
        }
        1 => {
            let shape: Vec<u32> = x.iter().map(|&size| draws.up_to(1, size)).collect();
            let values: Vec<i64> =
                (0..shape.iter().product::<u32>()).map(|_| draws.0.random_range(-size..size)).collect();
            of("gather_elements", &[x], Operation::GatherElements { axis }).with(ints(&shape, &values))
        }
        _ => {
            let bounds = [0; 2].map(|_| Size::fixed(draws.0.random_range(-size - 1..=size + 1)));
            let step = draws.one(&[1, 1, 2, 3, -1, -2]);
            of("slice", &[x], Operation::Slice { axis, start: bounds[0], end: bounds[1], step })
        }
    }
}

fn shape(draws: &mut Draws) -> Case {
    let x = draws.shape(2, 4);
    let fixed = |sizes: &[u32]| sizes.iter().map(|&size| Size::fixed(size.into())).collect::<Vec<_>>();
    match draws.up_to(0, 6) {
        0 => {
            let mut order: Vec<u32> = (0..count(&x)).collect();
            order.rotate_left(draws.up_to(0, count(&x) - 1) as usize);
            of("transpose", &[x], Operation::Transpose { order })
        }
        1 => of("expand", &[draws.broadcast(&x)], Operation::Expand { to: fixed(&x) }),
        2 => {
            let axis = draws.up_to(0, count(&x) - 1);
            let mut other = x.clone();
            other[axis as usize] = draws.up_to(1, 3);
            of("concat", &[x.clone(), other, x], Operation::Concat { axis })
        }
        3 => {
            let with = draws.one(&[Padding::Constant(0.3), Padding::Edge, Padding::Reflect]);
            let pad = |_: &u32| (draws.0.random_range(-1..=3), draws.0.random_range(-1..=3));
            let pads = x.iter().map(pad).collect();
            of("pad", &[x], Operation::Pad { pads, with })
        }
        4 => {
            let (upper, k) = (draws.coin(), draws.0.random_range(-2..=2));
            of("triangle", &[x], Operation::Triangle { upper, k })
        }
        5 => {
            let axes = draws.up_to(1, 2) as usize;
            let coordinates =
                [ResizeCoordinates::HalfPixel, ResizeCoordinates::Asymmetric, ResizeCoordinates::AlignCorners];
            let resize = Operation::Resize {
                to: fixed(&draws.spatial(axes, 1, 8)),
                by: draws.one(&[Resampling::Nearest, Resampling::Linear]),
                coordinates: draws.one(&coordinates),
            };
            of("resize", &[[vec![2, 2], draws.spatial(axes, 1, 6)].concat()], resize)
        }
        _ => of("reshape", &[x], Operation::Reshape { to: vec![None, Some(Size::fixed(1))] }),
    }
}

fn recurrence(draws: &mut Draws) -> Case {
    let (cell, gates, states) =
        draws.one(&[(RecurrentCell::Lstm, 4, 2), (RecurrentCell::Gru, 3, 1), (RecurrentCell::Rnn, 1, 1)]);
    let direction = draws.one(&[Direction::Forward, Direction::Reverse, Direction::Both]);
    let directions = if direction == Direction::Both { 2 } else { 1 };
    let (hidden, inputs, batch) = (draws.up_to(1, 4), draws.up_to(1, 4), draws.up_to(1, 3));
    // Around and beyond the length of a segment.
    let length = draws.one(&[1, 2, 5, 63, 64, 65, 130]);
    let mut shapes = vec![
        vec![length, batch, inputs],
        vec![directions, gates * hidden, inputs],
        vec![directions, gates * hidden, hidden],
        vec![directions, 2 * gates * hidden],
    ];
    let initial = draws.up_to(0, states);
    shapes.extend((0..initial).map(|_| vec![directions, batch, hidden]));
    of("recurrence", &shapes, Operation::Recurrent(Recurrence { cell, hidden, direction }))
}

/// Draws a case of one kind of operation.
type Draw = fn(&mut Draws) -> Case;

#[test]
fn random_operations_equal_the_cpu() {
    let kinds: [(Draw, usize); 9] = [
        (convolution, 80),
        (pool, 60),
        (reduction, 60),
        (normalization, 20),
        (elementwise, 60),
        (product, 40),
        (selection, 60),
        (shape, 80),
        (recurrence, 25),
    ];
    let mut draws = Draws(ChaCha8Rng::seed_from_u64(11));
    for (draw, tries) in kinds {
        let mut compared = 0;
        for _ in 0..tries {
            let case = draw(&mut draws);
            // Some draws make no operation, such as a kernel larger than its image.
            if case.checked().is_ok() {
                case.compare(&case.start(), None);
                compared += 1;
            }
        }
        assert!(compared >= tries / 3, "{compared} of {tries} cases are valid");
    }
}

/// A graph of many nodes over values of the shape `[batch, 4]`, which read any of the values before them.
fn random_graph(draws: &mut Draws, nodes: u32) -> Arc<GraphModel> {
    let mut graph = Graph {
        version: Graph::VERSION,
        lengths: None,
        inputs: vec![
            Input { name: "x".into(), element: Element::F32, shape: vec![Size::BATCH, Size::fixed(4)] },
            Input { name: "ids".into(), element: Element::I64, shape: vec![Size::BATCH] },
            Input { name: "mask".into(), element: Element::Bool, shape: vec![Size::BATCH, Size::fixed(4)] },
        ],
        parameters: [
            ("w", vec![4, 4]),
            ("v", vec![4, 4]),
            ("table", vec![5, 4]),
            ("scale", vec![4]),
            ("bias", vec![4]),
        ]
        .map(|(name, shape)| Parameter { name: name.into(), shape })
        .to_vec(),
        constants: vec![],
        nodes: vec![],
        outputs: vec![],
    };
    let node = |operation, inputs: &[u32]| Node {
        name: String::new(),
        operation,
        inputs: inputs.iter().map(|&input| ValueId(input)).collect(),
    };
    let mut next = graph.first_result().0;
    // Values to read: the input, and rows of the table.
    graph.nodes.push(node(Operation::Gather { axis: 0 }, &[5, 1]));
    let mut values = vec![0, next];
    next += 1;
    for _ in 0..nodes {
        let (a, b) = (draws.one(&values), draws.one(&values));
        let (first, rest): (Node, Option<Operation>) = match draws.up_to(0, 9) {
            0 => (node(Operation::MatMul, &[a, draws.one(&[3, 4])]), None),
            1 => (node(Operation::Activation(draws.one(&[Activation::Tanh, Activation::Gelu])), &[a]), None),
            2 => (node(Operation::Arithmetic(Arithmetic::Add), &[a, b]), None),
            3 => (node(Operation::Arithmetic(Arithmetic::Sub), &[a, b]), None),
            4 => (node(Operation::LayerNorm { axis: 1, epsilon: 0.1 }, &[a, 6, 7]), None),
            5 => (node(Operation::Softmax { axis: 1 }, &[a]), None),
            6 => (node(Operation::Where, &[2, a, b]), None),
            7 => (node(Operation::Comparison(Comparison::Less), &[a, b]), Some(Operation::Where)),
            8 => (node(Operation::ArgMax { axis: 1 }, &[a]), Some(Operation::Gather { axis: 0 })),
            _ => (node(Operation::Arithmetic(Arithmetic::Mul), &[a, 6]), None),
        };
        graph.nodes.push(first);
        next += 1;
        match rest {
            Some(Operation::Where) => graph.nodes.push(node(Operation::Where, &[next - 1, b, a])),
            Some(gather) => graph.nodes.push(node(gather, &[3, next - 1])),
            None => {
                values.push(next - 1);
                continue;
            }
        }
        values.push(next);
        next += 1;
    }
    // The sum of some values, so that many nodes have a gradient from several others.
    let mut sum = values[0];
    for value in values.into_iter().step_by(3) {
        graph.nodes.push(node(Operation::Arithmetic(Arithmetic::Add), &[sum, value]));
        sum = next;
        next += 1;
    }
    graph.outputs.push(Output { name: "y".into(), value: ValueId(sum) });
    Arc::new(GraphModel::new(graph, Loss::Mse).unwrap())
}

#[test]
fn random_graphs_equal_the_cpu() {
    for seed in 0..30 {
        let mut draws = Draws(ChaCha8Rng::seed_from_u64(seed));
        let nodes = draws.one(&[1, 15, 16, 40, 90]);
        let model = random_graph(&mut draws, nodes);
        let batch = draws.up_to(1, 3);
        let inputs = [
            Elements::F32(numbers(batch as usize * 4, seed)),
            Elements::I64((0..batch).map(|_| draws.0.random_range(0..5)).collect()),
            Elements::Bool((0..batch * 4).map(|_| draws.coin()).collect()),
        ];
        let parameters: Vec<f32> = numbers(60, seed + 100).iter().map(|number| 0.5 * number).collect();
        compare(&model, &inputs, &parameters, Point { batch, length: 1 }, None, &format!("graph {seed}"));
    }
}
