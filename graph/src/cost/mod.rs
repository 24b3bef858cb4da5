//! Computing time and memory of a training step, from the shapes alone.

mod node;
mod numbers;
mod products;
mod scratch;
mod view;
mod windows;

use self::numbers::product;
use self::scratch::Scratch;
use self::view::{NodeCost, View};
use crate::element::Element;
use crate::graph_error::GraphError;
use crate::model::{Graph, Node};
use crate::operation::Operation;
use crate::shapes::{Shapes, TensorType};
use crate::size::Point;

/// Maximum number of multiply-adds of a training step for each example of a batch.
pub const MAX_MULTIPLY_ADDS: u64 = 1 << 40;
/// Maximum number of bytes of a training step, as [`Cost::memory`] counts them: 4 GiB.
pub const MAX_MEMORY: u64 = 4 << 30;

/// Computing time and memory of a training step on one batch.
///
/// All numbers saturate at `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Multiply-adds of the forward pass. Products, convolutions and recurrences count each multiply-add of their
    /// definition, pooling each position of a window, and other operations one to eight for each element.
    pub forward: u64,
    /// Multiply-adds of the forward and the backward pass. The gradient of each operand of a product costs as much as
    /// the product. Operations that no parameter reaches have no backward pass.
    pub multiply_adds: u64,
    /// Peak bytes: all values, the gradients of those that depend on parameters, what operations save for their
    /// backward pass, and scratch memory. Integers take 8 bytes, floats 4, truth values 1. The optimizer's copies of the
    /// parameters and unused capacity of growing vectors come on top.
    pub memory: u64,
}

/// The cost of a training step. `shapes` are those that [`crate::infer`] gives for this graph; those of another graph
/// give a meaningless result.
#[must_use]
pub fn cost(graph: &Graph, shapes: &Shapes) -> Cost {
    let mut sum = Sum::default();
    each(graph, shapes, |_, _, node| sum.add(&node));
    let values = shapes.all().iter().fold(0_u64, |sum, value| sum.saturating_add(bytes(value)));
    let gradients = depends_on_parameters(graph, shapes).into_iter().zip(shapes.all()).filter(|(depends, _)| *depends);
    let gradients = gradients.fold(0_u64, |sum, (_, value)| sum.saturating_add(bytes(value)));
    let output = graph.outputs.first().and_then(|output| shapes.all().get(output.value.0 as usize)).map_or(0, bytes);
    let parts = [values, gradients, output, sum.saved, sum.temporary, sum.scratch.bytes()];
    Cost {
        forward: sum.forward,
        multiply_adds: sum.forward.saturating_add(sum.backward),
        memory: parts.into_iter().fold(0, u64::saturating_add),
    }
}

/// Checks the cost of a training step against the limits.
///
/// # Errors
/// [`GraphError::Node`] with the node that takes most of too many multiply-adds; [`GraphError::Graph`] for too much
/// memory.
pub(crate) fn check(graph: &Graph, shapes: &Shapes, point: Point) -> Result<(), GraphError> {
    let Cost { multiply_adds, memory, .. } = cost(graph, shapes);
    let Point { batch, length } = point;
    if multiply_adds > MAX_MULTIPLY_ADDS.saturating_mul(batch.into()) {
        let mut most: Option<(usize, &Node, u64)> = None;
        each(graph, shapes, |number, node, NodeCost { forward, backward, .. }| {
            let own = forward.saturating_add(backward);
            if most.is_none_or(|(_, _, most)| own > most) {
                most = Some((number, node, own));
            }
        });
        let of_all = format!("of {multiply_adds} in a training step for a batch of {batch} and a length of {length}");
        let allowed = format!("at most {MAX_MULTIPLY_ADDS} for each example are allowed");
        return Err(match most {
            Some((number, node, own)) => {
                node_error(number, node, format!("takes {own} multiply-adds {of_all}; {allowed}"))
            }
            None => GraphError::Graph(format!("{of_all}; {allowed}")),
        });
    }
    if memory > MAX_MEMORY {
        return Err(GraphError::Graph(format!(
            "takes {memory} bytes for a batch of {batch} and a length of {length}; at most {MAX_MEMORY} are allowed: \
             choose a smaller batch or shorter sequences"
        )));
    }
    Ok(())
}

fn node_error(number: usize, node: &Node, detail: String) -> GraphError {
    GraphError::Node { number, operation: node.operation.name(), name: node.name.clone(), detail }
}

/// Sums over nodes; memory that is used again counts at its maximum.
#[derive(Default)]
struct Sum {
    forward: u64,
    backward: u64,
    saved: u64,
    temporary: u64,
    scratch: Scratch,
}

impl Sum {
    fn add(&mut self, node: &NodeCost) {
        self.forward = self.forward.saturating_add(node.forward);
        self.backward = self.backward.saturating_add(node.backward);
        self.saved = self.saved.saturating_add(node.saved);
        self.temporary = self.temporary.max(node.temporary);
        self.scratch = self.scratch.max(node.scratch);
    }
}

/// Calls `visit` with each node and its cost.
fn each<'a>(graph: &'a Graph, shapes: &Shapes, mut visit: impl FnMut(usize, &'a Node, NodeCost)) {
    let depends = depends_on_parameters(graph, shapes);
    let mut result = graph.first_result().0 as usize;
    for (number, node) in graph.nodes.iter().enumerate() {
        let own = result;
        result += node.operation.outputs() as usize;
        let Some(first) = shapes.all().get(own) else { return };
        let inputs = node.inputs.iter().filter_map(|id| shapes.all().get(id.0 as usize)).collect();
        let is_trained = depends.get(own..result).is_some_and(|results| results.contains(&true));
        let needs = |id: usize| is_trained && depends.get(id).copied().unwrap_or(false);
        let gradients = node.inputs.iter().map(|id| needs(id.0 as usize)).collect();
        visit(number, node, node::cost(&View { operation: &node.operation, inputs, result: first, gradients }));
    }
}

/// For each value, whether it depends on a parameter through operations with gradients. `shapes` are those that
/// [`crate::infer`] gives for this graph.
#[must_use]
pub fn depends_on_parameters(graph: &Graph, shapes: &Shapes) -> Vec<bool> {
    depends_on_trained(graph, shapes, &vec![true; graph.parameters.len()])
}

/// For each value, whether it depends on a parameter that trains through operations with gradients. `trains` has an
/// element for each parameter; those beyond its end stay the same.
#[must_use]
pub fn depends_on_trained(graph: &Graph, shapes: &Shapes, trains: &[bool]) -> Vec<bool> {
    let mut depends = vec![false; shapes.all().len()];
    let parameters = depends.iter_mut().skip(graph.inputs.len()).take(graph.parameters.len());
    parameters.zip(trains).for_each(|(depends, &trains)| *depends = trains);
    let mut result = graph.first_result().0 as usize;
    for node in &graph.nodes {
        let is_cut = if let Operation::Activation(kind) = node.operation { kind.has_no_gradient() } else { false };
        let reaches = |id: usize| depends.get(id).copied().unwrap_or(false);
        let any = !is_cut && node.inputs.iter().any(|id| reaches(id.0 as usize));
        for _ in 0..node.operation.outputs() {
            // Gradients flow through floats alone.
            if let (Some(own), Some(kind)) = (depends.get_mut(result), shapes.all().get(result)) {
                *own = any && kind.element == Element::F32;
            }
            result += 1;
        }
    }
    depends
}

/// Bytes of a tensor.
fn bytes(tensor: &TensorType) -> u64 {
    let size = match tensor.element {
        Element::F32 => 4,
        Element::I64 => 8,
        Element::Bool => 1,
    };
    product(&tensor.shape).saturating_mul(size)
}

#[cfg(test)]
mod tests;
