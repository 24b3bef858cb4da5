//! Execution of a graph on one core: a loop over its nodes, and the same loop backwards.
//!
//! All values of a batch stay in memory from the forward to the backward pass, in buffers that are allocated once for each
//! batch size and length. Sums have a fixed order, so the same inputs give the same bits.

use std::ops::Range;
use std::sync::Arc;

use graph::{Graph, GraphError, GraphModel, Node, Point, Shapes, ValueId, Values, depends_on_parameters, infer};

use super::context::{Context, Gradients};
use super::ops::{self, Done};
use super::tensor::{Operand, Tensor};
use crate::trainer::Interrupt;

/// Why a graph was not computed on these inputs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecutionError {
    /// A node cannot compute.
    #[error("node {number} ({operation}{}{name}): {detail}", if name.is_empty() { "" } else { ", " })]
    Node { number: usize, operation: &'static str, name: String, detail: String },
    /// [`Executor::interrupt_by`].
    #[error("the computation was interrupted")]
    Interrupted,
}

/// Memory for one batch size and length.
struct Buffers {
    shapes: Shapes,
    values: Vec<Tensor>,
    /// Gradients of the values that depend on parameters; empty for the others, and before the first backward pass.
    gradients: Vec<Vec<f32>>,
    /// What each node saves for its way back.
    saved: Vec<Vec<f32>>,
}

impl Buffers {
    fn new(graph: &Graph, shapes: Shapes, nodes: usize) -> Self {
        let mut values: Vec<_> = shapes.all().iter().map(Tensor::zeros).collect();
        for (index, constant) in graph.constants.iter().enumerate() {
            values[graph.constant(index).0 as usize] = match &constant.values {
                Values::F32(values) => Tensor::F32(values.clone()),
                Values::I64(values) => Tensor::I64(values.clone()),
                Values::Bool(values) => Tensor::Bool(values.clone()),
            };
        }
        let gradients = vec![Vec::new(); values.len()];
        Self { shapes, values, gradients, saved: vec![Vec::new(); nodes] }
    }

    /// Resizes the values. Parameters and constants keep their sizes, and with them their elements.
    fn resize(&mut self, shapes: Shapes) {
        for (value, kind) in self.values.iter_mut().zip(shapes.all()) {
            value.resize(kind.elements());
        }
        self.shapes = shapes;
    }
}

/// A graph with its parameters, ready to compute.
pub(crate) struct Executor {
    model: Arc<GraphModel>,
    /// For each node, the numbers of its inputs and of its results.
    nodes: Vec<(Vec<usize>, Range<usize>)>,
    /// Whether a value depends on a parameter through operations with gradients.
    depends: Vec<bool>,
    context: Context,
    buffers: Option<Buffers>,
    interrupt: Interrupt,
}

impl Executor {
    /// An executor of a model, whose graph has been checked.
    pub(crate) fn new(model: Arc<GraphModel>) -> Self {
        let graph = model.graph();
        let (mut nodes, mut next) = (Vec::new(), graph.first_result().0 as usize);
        for node in &graph.nodes {
            let results = next..next + node.operation.outputs() as usize;
            next = results.end;
            nodes.push((node.inputs.iter().map(|id| id.0 as usize).collect(), results));
        }
        let context = Context::new();
        Self { depends: Vec::new(), nodes, context, buffers: None, interrupt: Interrupt::default(), model }
    }

    /// Ends later passes before the next node if the interrupt is due.
    pub(crate) fn interrupt_by(&mut self, interrupt: Interrupt) {
        self.interrupt = interrupt;
    }

    /// Shapes of all values for a batch and a length, with memory for them.
    ///
    /// Memory for a larger point is kept, so that a smaller last batch of an epoch allocates nothing.
    ///
    /// # Errors
    /// [`GraphError`] for a length that the graph does not compute.
    pub(crate) fn prepare(&mut self, point: Point) -> Result<&Shapes, GraphError> {
        if self.context.point != point || self.buffers.is_none() {
            let shapes = infer(self.model.graph(), point)?;
            self.context.point = point;
            match &mut self.buffers {
                Some(buffers) => buffers.resize(shapes),
                None => {
                    self.depends = depends_on_parameters(self.model.graph(), &shapes);
                    self.buffers = Some(Buffers::new(self.model.graph(), shapes, self.nodes.len()));
                }
            }
        }
        match &self.buffers {
            Some(buffers) => Ok(&buffers.shapes),
            None => unreachable!("they were allocated above"),
        }
    }

    /// The memory of a value, to write an input. [`Self::prepare`] comes first.
    pub(crate) fn input(&mut self, position: usize) -> Option<&mut Tensor> {
        let value = self.model.graph().input(position).0 as usize;
        self.buffers.as_mut()?.values.get_mut(value)
    }

    /// Copies the parameters, in the graph's order.
    pub(crate) fn set_parameters(&mut self, mut flat: &[f32]) {
        let Some(buffers) = &mut self.buffers else { return };
        for position in 0..self.model.graph().parameters.len() {
            let target = buffers.values[self.model.graph().parameter(position).0 as usize].f32_mut();
            let (own, rest) = flat.split_at(target.len());
            target.copy_from_slice(own);
            flat = rest;
        }
    }

    /// Computes all values. `dropout` is the seed of a training; without it, all elements stay.
    ///
    /// # Errors
    /// [`ExecutionError::Node`]: the node that cannot compute with its inputs, for example a position outside an axis;
    /// [`ExecutionError::Interrupted`].
    pub(crate) fn forward(&mut self, dropout: Option<u64>) -> Result<(), ExecutionError> {
        let Some(Buffers { shapes, values, saved, .. }) = &mut self.buffers else { return Ok(()) };
        for (number, (node, (inputs, results))) in self.model.graph().nodes.iter().zip(&self.nodes).enumerate() {
            if self.interrupt.is_due() {
                return Err(ExecutionError::Interrupted);
            }
            let (before, rest) = values.split_at_mut(results.start);
            let operands: Vec<_> = inputs.iter().map(|&input| operand(shapes, before, input)).collect();
            let result_shapes: Vec<_> = shapes.all()[results.clone()].iter().map(|kind| &kind.shape[..]).collect();
            self.context.dropout = dropout.map(|seed| seed.wrapping_add(number as u64));
            let results = &mut rest[..results.len()];
            ops::forward(&node.operation, &operands, &result_shapes, results, &mut saved[number], &mut self.context)
                .map_err(|detail| wrong(node, number, detail))?;
        }
        Ok(())
    }

    /// A value after [`Self::forward`].
    pub(crate) fn value(&self, id: ValueId) -> &[f32] {
        self.buffers.as_ref().map_or(&[], |buffers| buffers.values[id.0 as usize].f32())
    }

    /// A copy of a value of any type after [`Self::forward`].
    pub(crate) fn tensor(&self, id: ValueId) -> Tensor {
        self.buffers.as_ref().map_or(Tensor::F32(Vec::new()), |buffers| buffers.values[id.0 as usize].clone())
    }

    /// Number of elements of all values in memory.
    pub(crate) fn elements(&self) -> usize {
        self.buffers.as_ref().map_or(0, |buffers| buffers.values.iter().map(Tensor::len).sum())
    }

    /// The gradient of the parameters in the graph's order, given that of a value of the last forward pass.
    ///
    /// # Errors
    /// [`ExecutionError::Interrupted`].
    pub(crate) fn backward(&mut self, of: ValueId, gradient: &[f32], flat: &mut [f32]) -> Result<(), ExecutionError> {
        let Some(Buffers { shapes, values, gradients, saved }) = &mut self.buffers else { return Ok(()) };
        for (index, (gradient, kind)) in gradients.iter_mut().zip(shapes.all()).enumerate() {
            gradient.clear();
            if self.depends[index] {
                gradient.resize(kind.elements(), 0.0);
            }
        }
        match gradients.get_mut(of.0 as usize) {
            Some(target) if !target.is_empty() => target.copy_from_slice(gradient),
            Some(_) | None => {
                flat.fill(0.0);
                return Ok(());
            }
        }
        for (number, (node, (inputs, results))) in self.model.graph().nodes.iter().zip(&self.nodes).enumerate().rev() {
            if !self.depends[results.clone()].contains(&true) {
                continue;
            }
            if self.interrupt.is_due() {
                return Err(ExecutionError::Interrupted);
            }
            let operands: Vec<_> = inputs.iter().map(|&input| operand(shapes, values, input)).collect();
            let outcomes: Vec<_> = results.clone().map(|result| operand(shapes, values, result)).collect();
            let (before, own) = gradients.split_at_mut(results.start);
            let d_results: Vec<&[f32]> = own[..results.len()].iter().map(|gradient| &gradient[..]).collect();
            let done = Done { inputs: &operands, results: &outcomes, d_results: &d_results, saved: &saved[number] };
            ops::backward(&node.operation, &done, &mut Gradients { all: before, inputs }, &mut self.context);
        }
        let mut rest = flat;
        for position in 0..self.model.graph().parameters.len() {
            let gradient = &gradients[self.model.graph().parameter(position).0 as usize];
            let (own, after) = rest.split_at_mut(gradient.len());
            own.copy_from_slice(gradient);
            rest = after;
        }
        Ok(())
    }

    /// The node where a computation left the finite numbers: the first that results in NaN, otherwise the first with an
    /// infinite result. Infinities come first in a mask of an attention, where they are meant.
    pub(crate) fn first_not_finite(&self) -> Option<String> {
        let values = &self.buffers.as_ref()?.values;
        let first = |is_wrong: fn(&f32) -> bool| {
            let has = |value: &Tensor| value.f32().iter().any(is_wrong);
            self.nodes.iter().position(|(_, results)| values[results.clone()].iter().any(has))
        };
        let number = first(|value| value.is_nan()).or_else(|| first(|value| value.is_infinite()))?;
        let node = &self.model.graph().nodes[number];
        Some(wrong(node, number, "its result is not finite".to_owned()).to_string())
    }
}

fn wrong(node: &Node, number: usize, detail: String) -> ExecutionError {
    ExecutionError::Node { number, operation: node.operation.name(), name: node.name.clone(), detail }
}

fn operand<'a>(shapes: &'a Shapes, values: &'a [Tensor], index: usize) -> Operand<'a> {
    Operand { shape: &shapes.all()[index].shape, tensor: &values[index] }
}
