//! Forward passes of a graph on a candle device.

use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, Var};
use graph::{Arithmetic, Constant, Graph, Node, Operation, Point, Shapes, ValueId, Values, infer};

use super::ops::Context;
use super::pass::Pass;
use super::value::upload;
use crate::train::error::TrainError;
use crate::train::graph::tensor::Tensor as Elements;
use crate::trainer::Interrupt;

/// Number of nodes in a segment of the tape.
const SEGMENT: usize = 16;

/// A graph on a device.
pub(super) struct CandleExecutor<'a> {
    graph: &'a Graph,
    device: &'a Device,
    /// Type of the floats.
    dtype: DType,
    /// The constants with floats on the device; `None` for integers and truth values.
    constants: Vec<Option<Tensor>>,
    interrupt: Interrupt,
    /// Shapes of the last batch and length.
    prepared: Option<(Point, Arc<Shapes>)>,
}

impl<'a> CandleExecutor<'a> {
    /// An executor of a checked graph that computes with floats of this type.
    pub(super) fn new(graph: &'a Graph, device: &'a Device, dtype: DType) -> Result<Self> {
        let constants =
            graph.constants.iter().map(|constant| on_device(constant, dtype, device)).collect::<Result<_>>()?;
        Ok(Self { graph, device, dtype, constants, interrupt: Interrupt::default(), prepared: None })
    }

    /// Ends later passes before the next node if the interrupt is due.
    pub(super) fn interrupt_by(&mut self, interrupt: Interrupt) {
        self.interrupt = interrupt;
    }

    /// The interrupt that ends passes.
    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Parameters for a pass with gradients.
    pub(super) fn variables(&self, parameters: &[Var]) -> Result<Vec<Tensor>> {
        let converted = |parameter: &Var| match self.dtype {
            DType::F32 => Ok(parameter.as_tensor().clone()),
            _ => Ok(Var::from_tensor(&parameter.as_detached_tensor().to_dtype(self.dtype)?)?.into_inner()),
        };
        parameters.iter().map(converted).collect()
    }

    /// Parameters for a pass without gradients.
    pub(super) fn fixed(&self, parameters: &[Var]) -> Result<Vec<Tensor>> {
        parameters.iter().map(|parameter| parameter.as_detached_tensor().to_dtype(self.dtype)).collect()
    }

    /// Computes all values. `dropout` is the seed of a training; without it, all elements stay.
    ///
    /// # Errors
    /// [`TrainError::Graph`] for a length that the graph does not compute; [`TrainError::Execution`] and
    /// [`TrainError::Backend`] name the node that cannot compute; [`TrainError::Interrupted`].
    pub(super) fn forward(
        &mut self,
        inputs: &[Elements],
        parameters: Vec<Tensor>,
        point: Point,
        dropout: Option<u64>,
    ) -> std::result::Result<Pass<'a>, TrainError> {
        let shapes = self.shapes(point)?;
        let mut pass = Pass::new(self.graph, shapes, parameters);
        for (position, elements) in inputs.iter().enumerate() {
            pass.add(elements, |shape| upload(elements, shape, self.dtype, self.device), self.graph.input(position))?;
        }
        pass.add_parameters();
        for (constant, on_device) in self.graph.constants.iter().zip(&self.constants) {
            pass.add_constant(constant, on_device.as_ref());
        }
        for (number, node) in self.graph.nodes.iter().enumerate() {
            if self.interrupt.is_due() {
                return Err(TrainError::Interrupted);
            }
            if number.is_multiple_of(SEGMENT) {
                pass.cut();
            }
            let context = Context {
                device: self.device,
                dtype: self.dtype,
                point,
                dropout: dropout.map(|seed| seed.wrapping_add(number as u64)),
                exponent: self.exponent(node),
            };
            pass.compute(node, &context).map_err(|failure| failure.of_node(node, number))?;
        }
        Ok(pass)
    }

    fn shapes(&mut self, point: Point) -> std::result::Result<Arc<Shapes>, TrainError> {
        if let Some((prepared, shapes)) = &self.prepared
            && *prepared == point
        {
            return Ok(Arc::clone(shapes));
        }
        let shapes = Arc::new(infer(self.graph, point).map_err(TrainError::Graph)?);
        self.prepared = Some((point, Arc::clone(&shapes)));
        Ok(shapes)
    }

    /// The exponent of a power that is a constant of one number.
    fn exponent(&self, node: &Node) -> Option<f32> {
        let (Operation::Arithmetic(Arithmetic::Pow), [_, exponent]) = (&node.operation, &node.inputs[..]) else {
            return None;
        };
        let ValueId(first) = self.graph.constant(0);
        let constant = self.graph.constants.get(exponent.0.checked_sub(first)? as usize)?;
        match &constant.values {
            Values::F32(values) => values.first().copied().filter(|_| values.len() == 1),
            Values::I64(_) | Values::Bool(_) => None,
        }
    }
}

/// The floats of a constant on a device. Finite numbers stay finite in 16 bits, so that a large number in a mask times 0 is 0.
fn on_device(constant: &Constant, dtype: DType, device: &Device) -> Result<Option<Tensor>> {
    let Values::F32(values) = &constant.values else { return Ok(None) };
    let most = match dtype {
        DType::F16 => 65_504.0,
        DType::BF16 => 3.389_531_4e38,
        _ => f32::MAX,
    };
    let fitted = |&value: &f32| if value.is_finite() { value.clamp(-most, most) } else { value };
    let shape: Vec<usize> = constant.shape.iter().map(|&size| size as usize).collect();
    let fitted: Vec<f32> = values.iter().map(fitted).collect();
    Tensor::from_vec(fitted, shape, device)?.to_dtype(dtype).map(Some)
}
