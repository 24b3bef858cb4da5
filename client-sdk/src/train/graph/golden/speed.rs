//! Training passes per CPU-second, to compare with PyTorch's: `speed.py` prints the same networks' figures.
//!
//! `cargo test --release -p client-sdk --lib graph::golden::speed -- --ignored --nocapture`

use std::sync::Arc;

use graph::{
    Activation, Arithmetic, Convolution, Direction, Element, Graph, GraphModel, Input, Loss, Node, Operation, Output,
    Parameter, Point, Pool, PoolKind, Recurrence, RecurrentCell, Size, ValueId,
};

use crate::train::graph::executor::Executor;
use crate::train::graph::tensor::Tensor;

/// A network of one input.
pub(super) struct Net {
    pub(super) graph: Graph,
    next: u32,
}

impl Net {
    fn new(input: &[i64], parameters: &[&[u32]]) -> Self {
        let sizes = std::iter::once(Size::BATCH).chain(input.iter().map(|&size| Size::fixed(size))).collect();
        Self::of(Input { name: "x".into(), element: Element::F32, shape: sizes }, parameters)
    }

    pub(super) fn of(input: Input, parameters: &[&[u32]]) -> Self {
        let declared = parameters.iter().enumerate();
        let graph = Graph {
            version: Graph::VERSION,
            lengths: None,
            inputs: vec![input],
            parameters: declared
                .map(|(number, shape)| Parameter { name: format!("p{number}"), shape: shape.to_vec() })
                .collect(),
            constants: vec![],
            nodes: vec![],
            outputs: vec![],
        };
        let next = graph.first_result().0;
        Self { graph, next }
    }

    pub(super) fn add(&mut self, operation: Operation, inputs: &[u32]) -> u32 {
        let first = self.next;
        self.next += operation.outputs();
        let inputs = inputs.iter().copied().map(ValueId).collect();
        self.graph.nodes.push(Node { name: String::new(), operation, inputs });
        first
    }

    pub(super) fn apply(&mut self, activation: Activation, x: u32) -> u32 {
        self.add(Operation::Activation(activation), &[x])
    }

    pub(super) fn sum(&mut self, a: u32, b: u32) -> u32 {
        self.add(Operation::Arithmetic(Arithmetic::Add), &[a, b])
    }

    pub(super) fn reshape(&mut self, x: u32, sizes: &[i64]) -> u32 {
        let sizes = sizes.iter().map(|&size| Some(Size::fixed(size)));
        self.add(Operation::Reshape { to: std::iter::once(Some(Size::BATCH)).chain(sizes).collect() }, &[x])
    }

    /// A layer whose weight and bias are parameters one after the other.
    pub(super) fn affine(&mut self, x: u32, weight: u32) -> u32 {
        let gemm = Operation::Gemm { transpose_a: false, transpose_b: true, alpha: 1.0, beta: 1.0 };
        self.add(gemm, &[x, weight, weight + 1])
    }

    fn conv(&mut self, x: u32, weight: u32, pad: u32, groups: u32) -> u32 {
        let conv = Convolution { strides: vec![1; 2], pads: vec![(pad, pad); 2], dilations: vec![1; 2], groups };
        self.add(Operation::Conv(conv), &[x, weight, weight + 1])
    }

    fn max_pool(&mut self, x: u32) -> u32 {
        let pool =
            Pool { by: PoolKind::Max, kernel: vec![2; 2], strides: vec![2; 2], pads: vec![(0, 0); 2], ceil: false };
        self.add(Operation::Pool(pool), &[x])
    }

    /// Training examples per CPU-second.
    fn measure(mut self, name: &str, output: u32, batch: u32) {
        self.graph.outputs.push(Output { name: "y".into(), value: ValueId(output) });
        let model = Arc::new(GraphModel::new(self.graph, Loss::Mse).unwrap());
        let mut executor = Executor::new(Arc::clone(&model));
        let shapes = executor.prepare(Point { batch, length: 1 }).unwrap();
        let input = shapes.elements(ValueId(0));
        let size = model.graph().parameters.iter().map(|p| p.shape.iter().product::<u32>() as usize).sum();
        let numbers = |count: usize, scale: f32| -> Vec<f32> {
            (0..count).map(|index| scale * (((index * 7919 + 13) % 1021) as f32 / 510.0 - 1.0)).collect()
        };
        *executor.input(0).unwrap() = Tensor::F32(numbers(input, 1.0));
        let (parameters, mut gradient) = (numbers(size, 0.1), vec![0.0; size]);
        let mut best = 0.0_f64;
        for _ in 0..3 {
            let (began, mut steps) = (cpu_seconds(), 0);
            while cpu_seconds() - began < 1.0 {
                executor.set_parameters(&parameters);
                executor.forward(Some(1)).unwrap();
                let delta = executor.value(model.output()).to_vec();
                executor.backward(model.output(), &delta, &mut gradient).unwrap();
                steps += 1;
            }
            best = best.max(f64::from(steps * batch) / (cpu_seconds() - began));
        }
        assert!(gradient.iter().all(|value| value.is_finite()));
        println!("{name} {best:.0}");
    }
}

/// CPU time of this process.
pub(super) fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

#[test]
#[ignore = "a measurement"]
fn speed_of_products() {
    let mut net = Net::new(&[784], &[&[200, 784], &[200], &[10, 200], &[10]]);
    let x = net.affine(0, 1);
    let x = net.apply(Activation::Relu, x);
    let y = net.affine(x, 3);
    net.measure("mlp", y, 32);

    let (d, t, heads) = (64_i64, 64_i64, 4_i64);
    let layer: [&[u32]; 12] =
        [&[64, 64], &[64, 64], &[64, 64], &[64, 64], &[64], &[64], &[64, 256], &[256], &[256, 64], &[64], &[64], &[64]];
    let mut net = Net::new(&[t, d], &[layer, layer].concat());
    let mut x = 0;
    for first in [1, 13] {
        let norm = Operation::LayerNorm { axis: 2, epsilon: 1e-5 };
        let h = net.add(norm.clone(), &[x, first + 4, first + 5]);
        let mut split = |weight: u32, order: [u32; 4]| {
            let h = net.add(Operation::MatMul, &[h, weight]);
            let h = net.reshape(h, &[t, heads, d / heads]);
            net.add(Operation::Transpose { order: order.to_vec() }, &[h])
        };
        let (q, k, v) = (split(first, [0, 2, 1, 3]), split(first + 1, [0, 2, 3, 1]), split(first + 2, [0, 2, 1, 3]));
        let scores = net.add(Operation::MatMul, &[q, k]);
        let shares = net.add(Operation::Softmax { axis: 3 }, &[scores]);
        let h = net.add(Operation::MatMul, &[shares, v]);
        let h = net.add(Operation::Transpose { order: vec![0, 2, 1, 3] }, &[h]);
        let h = net.reshape(h, &[t, d]);
        let h = net.add(Operation::MatMul, &[h, first + 3]);
        x = net.sum(x, h);
        let h = net.add(norm, &[x, first + 10, first + 11]);
        let h = net.add(Operation::MatMul, &[h, first + 6]);
        let h = net.sum(h, first + 7);
        let h = net.apply(Activation::Gelu, h);
        let h = net.add(Operation::MatMul, &[h, first + 8]);
        let h = net.sum(h, first + 9);
        x = net.sum(x, h);
    }
    net.measure("transformer", x, 16);
}

#[test]
#[ignore = "a measurement"]
fn speed_of_recurrences() {
    for (name, cell, gates) in [("gru", RecurrentCell::Gru, 3), ("lstm", RecurrentCell::Lstm, 4)] {
        let mut net =
            Net::new(&[80, 8], &[&[1, gates * 128, 8], &[1, gates * 128, 128], &[1, gates * 256], &[128, 80]]);
        let x = net.add(Operation::Transpose { order: vec![1, 0, 2] }, &[0]);
        let recurrence = Recurrence { cell, hidden: 128, direction: Direction::Forward };
        let x = net.add(Operation::Recurrent(recurrence), &[x, 1, 2, 3]);
        let x = net.add(Operation::Transpose { order: vec![2, 0, 1, 3] }, &[x]);
        let x = net.reshape(x, &[80, 128]);
        let y = net.add(Operation::MatMul, &[x, 4]);
        net.measure(name, y, 16);
    }
}

#[test]
#[ignore = "a measurement"]
fn speed_of_convolutions() {
    let mut net = Net::new(
        &[1, 28, 28],
        &[&[32, 1, 5, 5], &[32], &[64, 32, 5, 5], &[64], &[512, 3136], &[512], &[10, 512], &[10]],
    );
    let mut x = 0;
    for weight in [1, 3] {
        x = net.conv(x, weight, 2, 1);
        x = net.apply(Activation::Relu, x);
        x = net.max_pool(x);
    }
    x = net.reshape(x, &[3136]);
    x = net.affine(x, 5);
    x = net.apply(Activation::Relu, x);
    let y = net.affine(x, 7);
    net.measure("cnn", y, 32);

    let mut net =
        Net::new(&[1, 28, 28], &[&[6, 1, 5, 5], &[6], &[16, 6, 5, 5], &[16], &[120, 400], &[120], &[10, 120], &[10]]);
    let mut x = 0;
    for (weight, pad) in [(1, 2), (3, 0)] {
        x = net.conv(x, weight, pad, 1);
        x = net.apply(Activation::Relu, x);
        x = net.max_pool(x);
    }
    x = net.reshape(x, &[400]);
    x = net.affine(x, 5);
    x = net.apply(Activation::Relu, x);
    let y = net.affine(x, 7);
    net.measure("lenet", y, 32);

    let mut net = Net::new(&[64, 16, 16], &[&[64, 64, 3, 3], &[64], &[64, 64, 3, 3], &[64]]);
    let x = net.conv(0, 1, 1, 1);
    let x = net.apply(Activation::Relu, x);
    let x = net.conv(x, 3, 1, 1);
    let y = net.sum(x, 0);
    net.measure("resnet", y, 16);

    let mut net = Net::new(&[16, 24, 24], &[&[64, 16, 1, 1], &[64], &[64, 1, 3, 3], &[64], &[16, 64, 1, 1], &[16]]);
    let x = net.conv(0, 1, 0, 1);
    let x = net.apply(Activation::HardSwish, x);
    let x = net.conv(x, 3, 1, 64);
    let x = net.apply(Activation::HardSwish, x);
    let x = net.conv(x, 5, 0, 1);
    let y = net.sum(x, 0);
    net.measure("mobilenet", y, 16);
}
