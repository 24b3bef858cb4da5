//! CPU time of a step that trains adapters of a network of the size of MiniLM (22.7 million parameters).
//!
//! `cargo test --release -p client-sdk --lib graph::golden::adapters -- --ignored --nocapture`

use std::sync::Arc;

use graph::{Activation, Element, GraphModel, Input, Loss, Operation, Output, Reduction, Size, ValueId};
use learning::{Adapters, Parameters, Patterns};
use task_spec::TrainingPlan;

use super::speed::{Net, cpu_seconds};
use crate::models::Architecture;
use crate::train::adapted::train_on_gradients;
use crate::train::graph::learner::GraphLearner;
use crate::train::learner::Learner;
use crate::train::steering::While;
use crate::train::{AdaptedBase, Column, Device, Examples, Sgd, TargetColumn, Trained, train_adapters};

const TOKENS: u32 = 30_522;
const WIDTH: u32 = 384;
const HEADS: u32 = 12;
const BLOCKS: u32 = 6;
const CLASSES: u32 = 20;

/// An encoder over sequences of so many tokens, with a linear layer over its mean.
fn encoder(length: u32) -> Arc<GraphModel> {
    let wide = 4 * WIDTH;
    let block: [&[u32]; 16] = [
        &[WIDTH, WIDTH],
        &[WIDTH],
        &[WIDTH, WIDTH],
        &[WIDTH],
        &[WIDTH, WIDTH],
        &[WIDTH],
        &[WIDTH, WIDTH],
        &[WIDTH],
        &[wide, WIDTH],
        &[wide],
        &[WIDTH, wide],
        &[WIDTH],
        &[WIDTH],
        &[WIDTH],
        &[WIDTH],
        &[WIDTH],
    ];
    let mut parameters: Vec<&[u32]> = vec![&[TOKENS, WIDTH], &[WIDTH], &[WIDTH]];
    (0..BLOCKS).for_each(|_| parameters.extend(block));
    parameters.extend([&[CLASSES, WIDTH][..], &[CLASSES]]);
    let last = u32::try_from(parameters.len()).unwrap();
    let sizes = vec![Size::BATCH, Size::fixed(length.into())];
    let mut net = Net::of(Input { name: "ids".into(), element: Element::I64, shape: sizes }, &parameters);
    let norm = Operation::LayerNorm { axis: 2, epsilon: 1e-12 };
    let x = net.add(Operation::Gather { axis: 0 }, &[1, 0]);
    let mut x = net.add(norm.clone(), &[x, 2, 3]);
    for number in 0..BLOCKS {
        let first = 4 + 16 * number;
        // As PyTorch exports a linear layer of sequences.
        let layer = |net: &mut Net, x: u32, weight: u32| {
            let weights = net.add(Operation::Transpose { order: vec![1, 0] }, &[weight]);
            let x = net.add(Operation::MatMul, &[x, weights]);
            net.sum(x, weight + 1)
        };
        let split = |net: &mut Net, weight: u32, order: [u32; 4]| {
            let h = layer(net, x, weight);
            let h = net.reshape(h, &[length.into(), HEADS.into(), (WIDTH / HEADS).into()]);
            net.add(Operation::Transpose { order: order.to_vec() }, &[h])
        };
        let q = split(&mut net, first, [0, 2, 1, 3]);
        let k = split(&mut net, first + 2, [0, 2, 3, 1]);
        let v = split(&mut net, first + 4, [0, 2, 1, 3]);
        let scores = net.add(Operation::MatMul, &[q, k]);
        let shares = net.add(Operation::Softmax { axis: 3 }, &[scores]);
        let h = net.add(Operation::MatMul, &[shares, v]);
        let h = net.add(Operation::Transpose { order: vec![0, 2, 1, 3] }, &[h]);
        let h = net.reshape(h, &[length.into(), WIDTH.into()]);
        let h = layer(&mut net, h, first + 6);
        let h = net.sum(x, h);
        x = net.add(norm.clone(), &[h, first + 12, first + 13]);
        let h = layer(&mut net, x, first + 8);
        let h = net.apply(Activation::Gelu, h);
        let h = layer(&mut net, h, first + 10);
        let h = net.sum(x, h);
        x = net.add(norm.clone(), &[h, first + 14, first + 15]);
    }
    let mean = net.add(Operation::Reduce { by: Reduction::Mean, axes: vec![1], keep: false }, &[x]);
    let y = net.affine(mean, last - 1);
    net.graph.outputs.push(Output { name: "y".into(), value: ValueId(y) });
    Arc::new(GraphModel::new(net.graph, Loss::CROSS_ENTROPY).unwrap())
}

/// Numbers as small as weights are.
fn weights(count: usize) -> Vec<f32> {
    (0..count).map(|index| 0.05 * (((index * 7919 + 13) % 1021) as f32 / 510.0 - 1.0)).collect()
}

#[test]
#[ignore = "a measurement"]
fn speed_of_adapters() {
    let (length, count) = (32, 8);
    let model = encoder(length);
    let architecture = Architecture::Graph(Arc::clone(&model));
    let layout = Arc::new(architecture.layout().unwrap());
    let base = Parameters::new(Arc::clone(&layout), weights(layout.len())).unwrap();
    let names: Vec<String> =
        (0..BLOCKS).flat_map(|block| [3 + 16 * block, 7 + 16 * block]).map(|at| format!("p{at}")).collect();
    let adapters = Adapters::new(&layout, &Patterns::new(names).unwrap(), 16, Some(32.0)).unwrap();
    let start = adapters.initial(1).unwrap();
    let ids: Vec<u32> = (0..count * length).map(|index| index * 7919 % TOKENS).collect();
    let (labels, inputs): (Vec<u32>, _) = ((0..count).collect(), [Column::U32(&ids)]);
    let (targets, count) = (TargetColumn::Classes(&labels), count as usize);
    let examples = Examples::Tensors { inputs: &inputs, targets, count, length: 1 };
    let adapted = AdaptedBase { base: &base, start: &start, adapters: &adapters };
    let trained = |plan: &TrainingPlan| {
        train_adapters(&architecture, adapted, examples, Sgd { plan, seed: 1 }, &Device::Cpu, &mut |_| true).unwrap()
    };
    // Each step with a learner of its own, which computes all gradients.
    let full = |plan: &TrainingPlan| {
        let mut gradient = |merged: &Parameters, chosen: &[usize]| {
            GraphLearner::new(&model, merged.values(), plan, count).gradient(&examples, chosen)
        };
        train_on_gradients(adapted, count, Sgd { plan, seed: 1 }, &mut While(&mut |_| true), &mut gradient).unwrap()
    };
    let runs: [&dyn Fn(&TrainingPlan) -> Trained; 2] = [&trained, &full];
    for (name, run) in ["adapters alone", "all gradients"].into_iter().zip(runs) {
        // The difference of two trainings is that of their steps.
        let [one, more] = [1, 11].map(|steps| {
            let plan = TrainingPlan { steps: Some(steps), batch_size: 8, learning_rate: 0.01, ..Default::default() };
            let began = cpu_seconds();
            run(&plan);
            cpu_seconds() - began
        });
        println!("{name}: the first step {one:.2} s, each other {:.3} s", (more - one) / 10.0);
    }
}
