//! Graphs whose chains of operations would overflow the stack.

use std::sync::Arc;

use candle_core::{DType, Device};
use graph::{
    Activation, Direction, Element, Graph, GraphModel, Input, Loss, Node, Operation, Output, Parameter, Point,
    Recurrence, RecurrentCell, Size, ValueId,
};

use super::{compare, variables};
use crate::checkpoints::Checkpoints;
use crate::train::error::TrainError;
use crate::train::graph::candle::executor::CandleExecutor;
use crate::train::graph::tensor::Tensor as Elements;
use crate::train::graph::tests::{case, numbers};
use crate::trainer::{Cancel, Interrupt};

/// A parameter times the input, negated so many times.
fn chain(length: u32) -> Arc<GraphModel> {
    let mut graph = Graph {
        version: Graph::VERSION,
        lengths: None,
        inputs: vec![Input { name: "x".into(), element: Element::F32, shape: vec![Size::BATCH, Size::fixed(2)] }],
        parameters: vec![Parameter { name: "w".into(), shape: vec![2, 2] }],
        constants: vec![],
        nodes: vec![],
        outputs: vec![],
    };
    let node = |operation, inputs| Node { name: String::new(), operation, inputs };
    graph.nodes.push(node(Operation::MatMul, vec![ValueId(0), ValueId(1)]));
    for number in 2..2 + length {
        graph.nodes.push(node(Operation::Activation(Activation::Neg), vec![ValueId(number)]));
    }
    graph.outputs.push(Output { name: "y".into(), value: ValueId(2 + length) });
    Arc::new(GraphModel::new(graph, Loss::Mse).unwrap())
}

#[test]
fn ten_thousand_nodes_fit_a_small_stack() {
    let small = std::thread::Builder::new().stack_size(512 << 10);
    let run = small.spawn(|| {
        let inputs = [Elements::F32(vec![1.0, -2.0, 3.0, 0.5])];
        compare(&chain(10_000), &inputs, &numbers(4, 1), Point { batch: 2, length: 1 }, None, "chain");
    });
    run.unwrap().join().unwrap();
}

#[test]
fn thousands_of_positions_fit_a_small_stack() {
    let small = std::thread::Builder::new().stack_size(512 << 10);
    let run = small.spawn(|| {
        for (cell, gates) in [(RecurrentCell::Lstm, 4), (RecurrentCell::Gru, 3), (RecurrentCell::Rnn, 1)] {
            let recurrence = Recurrence { cell, hidden: 2, direction: Direction::Both };
            let shapes: [&[u32]; 4] = [&[3000, 1, 2], &[2, 2 * gates, 2], &[2, 2 * gates, 2], &[2, 4 * gates]];
            let case = case("long", &shapes, Operation::Recurrent(recurrence));
            case.compare(&case.start(), None);
        }
    });
    run.unwrap().join().unwrap();
}

#[test]
fn cancelled_pass_ends_before_the_next_node() {
    let (model, point) = (chain(40), Point { batch: 1, length: 1 });
    let (inputs, parameters) = ([Elements::F32(vec![1.0, 2.0])], variables(model.graph(), &[1.0, 2.0, 3.0, 4.0]));
    let mut executor = CandleExecutor::new(model.graph(), &Device::Cpu, DType::F32).unwrap();
    let cancel = Cancel::default();
    executor.interrupt_by(Interrupt::new(&cancel, &Checkpoints::default()));
    let trained = executor.variables(&parameters).unwrap();
    let pass = executor.forward(&inputs, trained.clone(), point, None).unwrap();
    cancel.cancel();
    assert!(matches!(executor.forward(&inputs, trained, point, None), Err(TrainError::Interrupted)));
    let ended = pass.backward(model.output(), &[1.0, 1.0], executor.interrupt());
    assert!(matches!(ended, Err(TrainError::Interrupted)));
}
