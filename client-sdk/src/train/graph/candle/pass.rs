//! The values of a forward pass, and their gradients.

use std::borrow::Cow;
use std::sync::Arc;

use candle_core::{DType, Result, Tensor};
use graph::{Constant, Element, Graph, Node, Shapes, TensorType, ValueId, Values};

use super::failure::Failure;
use super::ops::{self, Context};
use super::tape::{Mark, Tape};
use super::value::{Value, download};
use crate::train::error::TrainError;
use crate::train::graph::context::Context as InMemory;
use crate::train::graph::executor::wrong;
use crate::train::graph::ops as in_memory;
use crate::train::graph::tensor::{Operand, Tensor as Elements};
use crate::trainer::Interrupt;

/// The values of a pass, in the order of their numbers.
pub(super) struct Pass<'a> {
    graph: &'a Graph,
    shapes: Arc<Shapes>,
    tape: Tape,
    parameters: Vec<Mark>,
    values: Vec<Value>,
}

impl<'a> Pass<'a> {
    /// A pass without values yet. The parameters may be variables.
    pub(super) fn new(graph: &'a Graph, shapes: Arc<Shapes>, parameters: Vec<Tensor>) -> Self {
        let (tape, parameters) = Tape::new(parameters);
        Self { graph, shapes, tape, parameters, values: Vec::new() }
    }

    /// Adds an input with this number; `upload` copies floats of a shape to the device.
    pub(super) fn add(
        &mut self,
        elements: &Elements,
        upload: impl FnOnce(&[usize]) -> Result<Tensor>,
        number: ValueId,
    ) -> Result<()> {
        let value = match elements.element() {
            Element::F32 => Value::Floats(self.tape.record(upload(&self.shapes.get(number).shape)?)),
            Element::I64 | Element::Bool => Value::Elements(elements.clone()),
        };
        self.values.push(value);
        Ok(())
    }

    /// Adds the parameters as the values after the inputs.
    pub(super) fn add_parameters(&mut self) {
        self.values.extend(self.parameters.iter().copied().map(Value::Floats));
    }

    /// Adds a constant, whose floats are on the device.
    pub(super) fn add_constant(&mut self, constant: &Constant, floats: Option<&Tensor>) {
        let value = match (&constant.values, floats) {
            (Values::I64(values), _) => Value::Elements(Elements::I64(values.clone())),
            (Values::Bool(values), _) => Value::Elements(Elements::Bool(values.clone())),
            (Values::F32(_), Some(floats)) => Value::Floats(self.tape.record(floats.clone())),
            (Values::F32(values), None) => Value::Elements(Elements::F32(values.clone())),
        };
        self.values.push(value);
    }

    /// Ends a segment of the tape.
    pub(super) fn cut(&mut self) {
        self.tape.cut();
    }

    /// Adds the results of the next node.
    pub(super) fn compute(&mut self, node: &Node, context: &Context<'_>) -> std::result::Result<(), Failure> {
        let shapes = Arc::clone(&self.shapes);
        let Some(kind) = shapes.all().get(self.values.len()) else { return Ok(()) };
        let inputs: Vec<&Value> = node.inputs.iter().map(|id| &self.values[id.0 as usize]).collect();
        let input_shapes: Vec<&[usize]> = node.inputs.iter().map(|id| &shapes.get(*id).shape[..]).collect();
        if kind.element == Element::F32 {
            let node =
                ops::Node { operation: &node.operation, inputs: &inputs, shapes: &input_shapes, result: &kind.shape };
            let results = ops::forward(&node, context, &mut self.tape)?;
            self.values.extend(results.into_iter().map(Value::Floats));
        } else {
            let result = elements(node, &inputs, &input_shapes, kind, context, &self.tape)?;
            self.values.push(Value::Elements(result));
        }
        Ok(())
    }

    /// The floats of a value; empty for other elements.
    pub(super) fn floats(&self, id: ValueId) -> Result<Vec<f32>> {
        match &self.values[id.0 as usize] {
            Value::Floats(mark) => download(self.tape.tensor(*mark)),
            Value::Elements(_) => Ok(Vec::new()),
        }
    }

    /// The gradients of the parameters in 32 bits, given that of a value. None for a parameter without influence.
    ///
    /// # Errors
    /// [`TrainError::Interrupted`], [`TrainError::Backend`].
    pub(super) fn backward(
        self,
        of: ValueId,
        gradient: &[f32],
        interrupt: &Interrupt,
    ) -> std::result::Result<Vec<Option<Tensor>>, TrainError> {
        let Value::Floats(mark) = self.values[of.0 as usize] else { return Ok(vec![None; self.parameters.len()]) };
        let output = self.tape.tensor(mark);
        let gradient = Tensor::from_slice(gradient, output.shape(), output.device())?.to_dtype(output.dtype())?;
        let gradients = self.tape.backward(mark, gradient, interrupt)?;
        let converted =
            gradients.into_iter().map(|gradient| gradient.map(|found| found.to_dtype(DType::F32)).transpose());
        Ok(converted.collect::<Result<_>>()?)
    }

    /// The node where a computation left the finite numbers: the first that results in NaN, otherwise the first with an infinite
    /// result.
    pub(super) fn first_not_finite(&self) -> Result<Option<String>> {
        let (mut next, mut infinite) = (self.graph.first_result().0, None);
        let described =
            |number: usize, node: &Node| wrong(node, number, "its result is not finite".to_owned()).to_string();
        for (number, node) in self.graph.nodes.iter().enumerate() {
            for _ in 0..node.operation.outputs() {
                let floats = self.floats(ValueId(next))?;
                next += 1;
                if floats.iter().any(|value| value.is_nan()) {
                    return Ok(Some(described(number, node)));
                }
                if infinite.is_none() && floats.iter().any(|value| value.is_infinite()) {
                    infinite = Some(described(number, node));
                }
            }
        }
        Ok(infinite)
    }
}

/// Computes integers or truth values in memory. Floats among the inputs are copied from the device.
fn elements(
    node: &Node,
    inputs: &[&Value],
    shapes: &[&[usize]],
    kind: &TensorType,
    context: &Context<'_>,
    tape: &Tape,
) -> std::result::Result<Elements, Failure> {
    let mut copies = Vec::with_capacity(inputs.len());
    for input in inputs {
        copies.push(match input {
            Value::Floats(mark) => Cow::Owned(Elements::F32(download(tape.tensor(*mark))?)),
            Value::Elements(elements) => Cow::Borrowed(elements),
        });
    }
    let operands: Vec<Operand<'_>> =
        copies.iter().zip(shapes).map(|(tensor, shape)| Operand { shape, tensor }).collect();
    let mut results = [Elements::zeros(kind)];
    let mut in_context = InMemory::new();
    in_context.point = context.point;
    let mut saved = Vec::new();
    in_memory::forward(&node.operation, &operands, &[&kind.shape[..]], &mut results, &mut saved, &mut in_context)
        .map_err(Failure::Values)?;
    let [result] = results;
    Ok(result)
}
