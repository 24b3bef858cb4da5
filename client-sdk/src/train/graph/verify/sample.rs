//! Inputs of a check: random ones, or given examples.

use graph::{Element, Graph, GraphError, Operation, Point, infer};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

use crate::train::error::TrainError;
use crate::train::graph::examples::table_size;
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

    /// Random floats from -1 to 1, random integers that the graph takes, and truth.
    pub(super) fn random(graph: &Graph, batch: u32, draws: &mut ChaCha8Rng) -> Result<Self, GraphError> {
        let point = Self::point(graph, batch);
        let shapes = infer(graph, point)?;
        let draw = |(position, input): (usize, &graph::Input)| {
            let size = shapes.elements(graph.input(position));
            match input.element {
                Element::F32 => Tensor::F32((0..size).map(|_| 2.0 * draws.random::<f32>() - 1.0).collect()),
                Element::I64 => {
                    let most = largest_integer(graph, position);
                    Tensor::I64((0..size).map(|_| draws.random_range(0..=most)).collect())
                }
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

/// The largest integer that a random input may hold: the last row of its table. Bytes go to graphs without tables, and 1 to those that
/// may compute positions from the input.
fn largest_integer(graph: &Graph, position: usize) -> i64 {
    let selects =
        |operation: &Operation| matches!(operation, Operation::Gather { .. } | Operation::GatherElements { .. });
    match table_size(graph, position) {
        Some(size) => i64::try_from(size).map_or(i64::MAX, |size| (size - 1).max(0)),
        None if graph.nodes.iter().any(|node| selects(&node.operation)) => 1,
        None => i64::from(u8::MAX),
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;
    use crate::train::graph::imported::table;

    #[test]
    fn random_integers_reach_every_row_of_a_table() {
        let (model, _) = table();
        let graph = model.graph();
        let position = graph.inputs.iter().position(|input| input.element == Element::I64).unwrap();
        assert_eq!(largest_integer(graph, position), 4);
        let sample = Sample::random(graph, 64, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
        let Tensor::I64(drawn) = &sample.inputs[position] else { panic!("it takes integers") };
        assert!((0..5).all(|row| drawn.contains(&row)), "{drawn:?}");
        let without_tables = Graph { nodes: Vec::new(), ..graph.clone() };
        assert_eq!(largest_integer(&without_tables, position), 255);
    }
}
