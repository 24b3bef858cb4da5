//! Batch normalizations that train by the statistics of the batch, and their running statistics among the parameters.

use std::collections::BTreeSet;

use crate::graph_error::GraphError;
use crate::infer::shapes;
use crate::model::{Graph, Node, ValueId};
use crate::operation::Operation;
use crate::size::Point;

/// A batch normalization with a momentum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchStatistics {
    /// Position of its node.
    pub node: usize,
    /// Position of its running mean among the parameters.
    pub mean: usize,
    /// Position of its running variance among the parameters.
    pub variance: usize,
    /// Share of a batch in the running statistics.
    pub momentum: f32,
}

impl Graph {
    /// The batch normalizations that train by the statistics of the batch, in execution order.
    #[must_use]
    pub fn batch_statistics(&self) -> Vec<BatchStatistics> {
        let nodes = self.nodes.iter().enumerate();
        let found = nodes.filter_map(|(number, node)| {
            let (momentum, [mean, variance]) = running(node)?;
            let (mean, variance) = (self.parameter_of(mean)?, self.parameter_of(variance)?);
            Some(BatchStatistics { node: number, mean, variance, momentum })
        });
        found.collect()
    }

    /// Positions of the running means and variances of [`Self::batch_statistics`] among the parameters. A training step
    /// replaces them, and the optimizer leaves them alone.
    #[must_use]
    pub fn running_statistics(&self) -> BTreeSet<usize> {
        self.batch_statistics().iter().flat_map(|layer| [layer.mean, layer.variance]).collect()
    }

    /// Number of examples of this length that give each channel of [`Self::batch_statistics`] more than one value: 1 or 2.
    ///
    /// # Errors
    /// [`GraphError`] for a length that the graph does not compute.
    pub fn least_batch(&self, length: u32) -> Result<u32, GraphError> {
        let layers = self.batch_statistics();
        if layers.is_empty() {
            return Ok(1);
        }
        let shapes = shapes(self, Point { batch: 1, length })?;
        let is_single = |layer: &BatchStatistics| {
            let Some(x) = self.nodes[layer.node].inputs.first() else { return false };
            let x = shapes.get(*x);
            x.shape.get(1).is_some_and(|channels| x.elements() <= *channels)
        };
        Ok(if layers.iter().any(is_single) { 2 } else { 1 })
    }

    /// Position of a value among the parameters, if it is one.
    fn parameter_of(&self, value: ValueId) -> Option<usize> {
        let position = (value.0 as usize).checked_sub(self.inputs.len())?;
        (position < self.parameters.len()).then_some(position)
    }

    /// Running statistics of a batch normalization with a momentum are parameters, each of one kind, which nothing else
    /// reads; and the graph has the format of such.
    pub(super) fn check_statistics(&self) -> Result<(), GraphError> {
        let mut kinds = [BTreeSet::new(), BTreeSet::new()];
        for (number, node) in self.nodes.iter().enumerate() {
            let Some((_, statistics)) = running(node) else { continue };
            let wrong = |detail: String| {
                let (operation, name) = (node.operation.name(), node.name.clone());
                Err(GraphError::Node { number, operation, name, detail })
            };
            if self.version < Self::BATCH_STATISTICS {
                let needed = Self::BATCH_STATISTICS;
                return wrong(format!(
                    "has a momentum, which graphs of the format {needed} have; this is {}",
                    self.version
                ));
            }
            if statistics.iter().any(|statistic| self.parameter_of(*statistic).is_none()) {
                return wrong("has a momentum; its mean and variance must be parameters".to_owned());
            }
            for (kind, statistic) in kinds.iter_mut().zip(statistics) {
                kind.insert(statistic);
            }
        }
        let [means, variances] = &kinds;
        let is_statistic = |value: &ValueId| means.contains(value) || variances.contains(value);
        let read = self.nodes.iter().flat_map(|node| {
            let others = if running(node).is_some() { node.inputs.get(..3) } else { node.inputs.get(..) };
            others.unwrap_or_default()
        });
        let mut others = read.chain(self.outputs.iter().map(|output| &output.value));
        let misused = others.find(|value| is_statistic(value)).or_else(|| means.intersection(variances).next());
        let Some(position) = misused.and_then(|value| self.parameter_of(*value)) else { return Ok(()) };
        let name = self.parameters[position].name.clone();
        let detail = "is a running statistic of a batch normalization, and something else uses it, too".to_owned();
        Err(GraphError::Tensor { kind: "parameter", name, detail })
    }
}

/// Momentum, mean and variance of a batch normalization with a momentum.
fn running(node: &Node) -> Option<(f32, [ValueId; 2])> {
    let (Operation::BatchNorm { momentum: Some(momentum), .. }, [_, _, _, mean, variance]) =
        (&node.operation, &node.inputs[..])
    else {
        return None;
    };
    Some((*momentum, [*mean, *variance]))
}
