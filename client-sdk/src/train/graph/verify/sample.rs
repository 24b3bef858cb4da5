//! Inputs of a check: random ones, or given examples.

use graph::{Element, Graph, GraphError, Point, infer};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

use crate::train::error::TrainError;
use crate::train::graph::executor::Executor;
use crate::train::graph::predict::{NamedTensor, ordered};
use crate::train::graph::tensor::Tensor;

/// Longest sequences of random inputs.
const LENGTH: u32 = 16;

/// Inputs in the graph's order, with their batch and length.
pub(super) struct Sample {
    inputs: Vec<Tensor>,
    pub(super) point: Point,
}

impl Sample {
    /// Batch and length of random inputs.
    pub(super) fn point(graph: &Graph, batch: u32) -> Point {
        Point { batch, length: graph.lengths.map_or(1, |lengths| LENGTH.clamp(lengths.least, lengths.most)) }
    }

    /// Random floats from -1 to 1, integers 0 and 1, and truth.
    pub(super) fn random(graph: &Graph, batch: u32, draws: &mut ChaCha8Rng) -> Result<Self, GraphError> {
        let point = Self::point(graph, batch);
        let shapes = infer(graph, point)?;
        let draw = |(position, input): (usize, &graph::Input)| {
            let size = shapes.elements(graph.input(position));
            match input.element {
                Element::F32 => Tensor::F32((0..size).map(|_| 2.0 * draws.random::<f32>() - 1.0).collect()),
                Element::I64 => Tensor::I64((0..size).map(|_| i64::from(draws.random::<bool>())).collect()),
                Element::Bool => Tensor::Bool(vec![true; size]),
            }
        };
        Ok(Self { inputs: graph.inputs.iter().enumerate().map(draw).collect(), point })
    }

    /// The first examples of given inputs, at most `most`.
    pub(super) fn first(graph: &Graph, given: &[NamedTensor], most: u32) -> Result<Self, TrainError> {
        let (tensors, point) = ordered(graph, given)?;
        let batch = point.batch.min(most);
        let part = |given: &&NamedTensor| {
            let mut tensor = given.values.clone();
            tensor.resize(given.values.len() / point.batch as usize * batch as usize);
            tensor
        };
        Ok(Self { inputs: tensors.iter().map(part).collect(), point: Point { batch, ..point } })
    }

    /// Allocates an executor's memory for these inputs, and copies them.
    pub(super) fn feed(self, executor: &mut Executor) -> Result<(), GraphError> {
        executor.prepare(self.point)?;
        for (position, tensor) in self.inputs.into_iter().enumerate() {
            if let Some(target) = executor.input(position) {
                *target = tensor;
            }
        }
        Ok(())
    }
}
