//! A node with what it reads, and the steps that all operators share.

use graph::{Activation, Arithmetic, Comparison, Element, Logic, Operation, Size};

use crate::build::{Builder, Id};
use crate::error::{Place, Warning};
use crate::options::{BatchNorm, Dropout};
use crate::proto::Node;

pub(super) type Result<T> = std::result::Result<T, String>;

/// A node with what it reads.
pub(crate) struct Context<'a> {
    pub(crate) builder: &'a mut Builder,
    pub(crate) node: &'a Node,
    pub(crate) inputs: Vec<Option<Id>>,
    pub(crate) opset: i64,
    pub(crate) dropout: Dropout,
    pub(crate) batch_norm: BatchNorm,
    pub(crate) warnings: &'a mut Vec<Warning>,
    pub(crate) place: &'a Place,
}

/// Short forms for lowering.
impl Context<'_> {
    pub(crate) fn input(&self, number: usize) -> Result<Id> {
        self.optional(number).ok_or_else(|| format!("its input {number} is missing"))
    }

    /// An input that may be left out.
    pub(crate) fn optional(&self, number: usize) -> Option<Id> {
        self.inputs.get(number).copied().flatten()
    }

    pub(crate) fn add(&mut self, operation: Operation, inputs: &[Id]) -> Result<Id> {
        self.builder.add(operation, inputs)
    }

    pub(crate) fn activate(&mut self, activation: Activation, x: Id) -> Result<Id> {
        self.add(Operation::Activation(activation), &[x])
    }

    pub(crate) fn arithmetic(&mut self, by: Arithmetic, a: Id, b: Id) -> Result<Id> {
        self.add(Operation::Arithmetic(by), &[a, b])
    }

    pub(crate) fn compare(&mut self, by: Comparison, a: Id, b: Id) -> Result<Id> {
        self.add(Operation::Comparison(by), &[a, b])
    }

    pub(crate) fn not(&mut self, x: Id) -> Result<Id> {
        self.add(Operation::Logic(Logic::Not), &[x])
    }

    /// The same value with another type of elements.
    pub(crate) fn cast(&mut self, x: Id, to: Element) -> Result<Id> {
        if self.builder.element(x) == to { Ok(x) } else { self.add(Operation::Cast { to }, &[x]) }
    }

    /// A value times a number.
    pub(crate) fn scale(&mut self, x: Id, factor: f32) -> Result<Id> {
        let factor = self.builder.scalar(factor);
        self.arithmetic(Arithmetic::Mul, x, factor)
    }

    pub(crate) fn transposed(&mut self, x: Id, order: &[u32]) -> Result<Id> {
        if order.iter().zip(0..).all(|(axis, at)| *axis == at) {
            return Ok(x);
        }
        self.add(Operation::Transpose { order: order.to_vec() }, &[x])
    }

    /// The same elements in shapes that are given for each point; a size of no known form becomes the rest.
    pub(crate) fn reshaped(&mut self, x: Id, shapes: &[Vec<i64>]) -> Result<Id> {
        if self.builder.shapes(x) == shapes {
            return Ok(x);
        }
        let rank = shapes[0].len();
        if shapes.iter().any(|shape| shape.len() != rank) {
            return Err("the rank depends on the batch or the length".to_owned());
        }
        let mut to = Vec::new();
        for axis in 0..rank {
            let sizes: Vec<i64> = shapes.iter().map(|shape| shape[axis]).collect();
            to.push(match self.builder.fit(&sizes) {
                Ok(size) => Some(size),
                Err(why) if to.contains(&None) => return Err(why),
                Err(_) => None,
            });
        }
        self.add(Operation::Reshape { to }, &[x])
    }

    /// The sizes of a value's axes.
    pub(crate) fn sizes(&self, x: Id) -> Result<Vec<Size>> {
        (0..self.builder.rank(x)).map(|axis| self.builder.fit(&self.builder.dims(x, axis))).collect()
    }

    /// An axis counted from 0.
    pub(crate) fn axis(&self, axis: i64, rank: usize) -> Result<u32> {
        let count = i64::try_from(rank).map_err(|error| error.to_string())?;
        let from_start = if axis < 0 { axis.saturating_add(count) } else { axis };
        if (0..count).contains(&from_start) {
            u32::try_from(from_start).map_err(|error| error.to_string())
        } else {
            Err(format!("axis {axis} is outside of {rank} axes"))
        }
    }
}

/// A small whole number.
pub(crate) fn small<T: TryFrom<i64>>(value: i64, what: &str) -> Result<T> {
    T::try_from(value).map_err(|_| format!("{what} is {value}, which is out of range"))
}
