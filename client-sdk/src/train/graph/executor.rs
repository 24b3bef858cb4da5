//! Execution of a graph on one core: a loop over its nodes, and the same loop backwards.
//!
//! All values of a batch stay in memory from the forward to the backward pass, in buffers that are allocated once for each
//! batch size and length. Sums have a fixed order, so the same inputs give the same bits.
//!
//! A parameter that does not train gets no gradient, and neither do values that depend on such parameters alone. What
//! follows from such parameters and constants, for example a transposed weight, is computed once.

use std::ops::Range;
use std::sync::Arc;

use graph::{
    Graph, GraphError, GraphModel, Node, Operation, Point, Shapes, ValueId, Values, depends_on_trained, infer,
};

use super::context::{Context, Gradients, Statistics};
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
    /// Gradients of the values that depend on parameters that train; empty for the others, and before the first backward
    /// pass.
    gradients: Vec<Vec<f32>>,
    /// Whether a gradient holds numbers of this pass.
    begun: Vec<bool>,
    /// What each node saves for its way back.
    saved: Vec<Vec<f32>>,
    /// Whether the values hold the parameters that do not train, and the results of [`Executor::fixed`] nodes.
    has_fixed: bool,
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
        let begun = vec![false; values.len()];
        Self { shapes, values, gradients, begun, saved: vec![Vec::new(); nodes], has_fixed: false }
    }

    /// Resizes the values. Parameters and constants keep their sizes, and with them their elements.
    fn resize(&mut self, shapes: Shapes) {
        for (value, kind) in self.values.iter_mut().zip(shapes.all()) {
            value.resize(kind.elements());
        }
        self.shapes = shapes;
        self.has_fixed = false;
    }
}

/// A graph with its parameters, ready to compute.
pub(crate) struct Executor {
    model: Arc<GraphModel>,
    /// For each node, the numbers of its inputs and of its results.
    nodes: Vec<(Vec<usize>, Range<usize>)>,
    /// For each parameter, whether it trains.
    trains: Vec<bool>,
    /// Whether a value depends on a parameter that trains through operations with gradients.
    depends: Vec<bool>,
    /// For each node, whether its results stay the same for a batch size and length.
    fixed: Vec<bool>,
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
        let trains = vec![true; graph.parameters.len()];
        Self {
            trains,
            depends: Vec::new(),
            fixed: Vec::new(),
            nodes,
            context: Context::new(),
            buffers: None,
            interrupt: Interrupt::default(),
            model,
        }
    }

    /// Trains only these parameters, until this is called again. The others keep the values that
    /// [`Self::set_parameters`] gets first.
    pub(crate) fn train_only(&mut self, trains: Vec<bool>) {
        self.trains = trains;
        self.reset();
    }

    /// Forgets all values, those of parameters that do not train included.
    pub(crate) fn reset(&mut self) {
        self.buffers = None;
    }

    /// Sets the statistics of batch normalizations from the next pass on; [`Statistics::Running`] at first.
    pub(super) fn normalize_by(&mut self, statistics: Statistics) {
        self.context.statistics = statistics;
    }

    /// What a node saved in the last forward pass for its way back.
    pub(super) fn saved(&self, node: usize) -> &[f32] {
        self.buffers.as_ref().map_or(&[], |buffers| &buffers.saved[node])
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
                    self.depends = depends_on_trained(self.model.graph(), &shapes, &self.trains);
                    self.fixed = fixed(self.model.graph(), &self.nodes, &self.trains);
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

    /// The memory of all inputs, in the graph's order; empty before [`Self::prepare`].
    pub(crate) fn inputs(&mut self) -> &mut [Tensor] {
        let count = self.model.graph().inputs.len();
        match &mut self.buffers {
            Some(buffers) => &mut buffers.values[..count],
            None => &mut [],
        }
    }

    /// Copies the parameters, in the graph's order.
    pub(crate) fn set_parameters(&mut self, mut flat: &[f32]) {
        let Some(buffers) = &mut self.buffers else { return };
        for (position, trains) in self.trains.iter().enumerate() {
            let target = buffers.values[self.model.graph().parameter(position).0 as usize].f32_mut();
            let (own, rest) = flat.split_at(target.len());
            if *trains || !buffers.has_fixed {
                target.copy_from_slice(own);
            }
            flat = rest;
        }
    }

    /// Computes all values. `dropout` is the seed of a training; without it, all elements stay.
    ///
    /// # Errors
    /// [`ExecutionError::Node`]: the node that cannot compute with its inputs, for example a position outside an axis;
    /// [`ExecutionError::Interrupted`].
    pub(crate) fn forward(&mut self, dropout: Option<u64>) -> Result<(), ExecutionError> {
        let Some(Buffers { shapes, values, saved, has_fixed, .. }) = &mut self.buffers else { return Ok(()) };
        for (number, (node, (inputs, results))) in self.model.graph().nodes.iter().zip(&self.nodes).enumerate() {
            if *has_fixed && self.fixed[number] {
                continue;
            }
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
        *has_fixed = true;
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

    /// The gradient of the parameters in the graph's order, given that of a value of the last forward pass. Elements of
    /// parameters that do not train stay as they are.
    ///
    /// # Errors
    /// [`ExecutionError::Interrupted`].
    pub(crate) fn backward(&mut self, of: ValueId, gradient: &[f32], flat: &mut [f32]) -> Result<(), ExecutionError> {
        let Some(Buffers { shapes, values, gradients, begun, saved, .. }) = &mut self.buffers else { return Ok(()) };
        // Numbers of the last pass stay until the first ones of this pass replace them.
        for (index, (gradient, kind)) in gradients.iter_mut().zip(shapes.all()).enumerate() {
            gradient.resize(if self.depends[index] { kind.elements() } else { 0 }, 0.0);
        }
        begun.fill(false);
        match gradients.get_mut(of.0 as usize) {
            Some(target) if !target.is_empty() => {
                target.copy_from_slice(gradient);
                begun[of.0 as usize] = true;
            }
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
            clear_rest(&mut own[..results.len()], &begun[results.clone()]);
            let d_results: Vec<&[f32]> = own[..results.len()].iter().map(|gradient| &gradient[..]).collect();
            let done = Done { inputs: &operands, results: &outcomes, d_results: &d_results, saved: &saved[number] };
            let mut before = Gradients { all: before, begun, inputs };
            ops::backward(&node.operation, &done, &mut before, &mut self.context);
        }
        clear_rest(gradients, begun);
        let mut rest = flat;
        for (position, trains) in self.trains.iter().enumerate() {
            let parameter = self.model.graph().parameter(position);
            let (own, after) = rest.split_at_mut(shapes.elements(parameter));
            if *trains {
                own.copy_from_slice(&gradients[parameter.0 as usize]);
            }
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

/// Clears the gradients that no later value added to.
fn clear_rest(gradients: &mut [Vec<f32>], begun: &[bool]) {
    for (gradient, _) in gradients.iter_mut().zip(begun).filter(|(_, is_begun)| !**is_begun) {
        gradient.fill(0.0);
    }
}

/// For each node, whether its results depend on no input, on no parameter that trains and on no dropout.
fn fixed(graph: &Graph, nodes: &[(Vec<usize>, Range<usize>)], trains: &[bool]) -> Vec<bool> {
    let mut stays = vec![false; graph.inputs.len()];
    stays.extend(trains.iter().map(|trains| !trains));
    stays.resize(graph.first_result().0 as usize, true);
    let mut fixed = Vec::with_capacity(nodes.len());
    for (node, (inputs, results)) in graph.nodes.iter().zip(nodes) {
        let is_drawn = matches!(node.operation, Operation::Dropout { .. });
        let is_fixed = !is_drawn && inputs.iter().all(|&input| stays[input]);
        stays.resize(results.end, is_fixed);
        fixed.push(is_fixed);
    }
    fixed
}

/// The error of a node, by its number in execution order.
pub(super) fn wrong(node: &Node, number: usize, detail: String) -> ExecutionError {
    ExecutionError::Node { number, operation: node.operation.name(), name: node.name.clone(), detail }
}

fn operand<'a>(shapes: &'a Shapes, values: &'a [Tensor], index: usize) -> Operand<'a> {
    Operand { shape: &shapes.all()[index].shape, tensor: &values[index] }
}
