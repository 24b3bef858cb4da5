//! Values of a graph in memory.

use graph::{Element, TensorType};

use crate::train::examples::Column;

/// Elements in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub enum Tensor {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// Integers: identifiers, positions, classes.
    I64(Vec<i64>),
    /// Truth values, for masks.
    Bool(Vec<bool>),
}

impl Tensor {
    /// Type of the elements.
    #[must_use]
    pub fn element(&self) -> Element {
        match self {
            Self::F32(_) => Element::F32,
            Self::I64(_) => Element::I64,
            Self::Bool(_) => Element::Bool,
        }
    }

    /// Number of elements of the tensor.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::Bool(values) => values.len(),
        }
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as an input of all examples.
    #[must_use]
    pub fn column(&self) -> Column<'_> {
        match self {
            Self::F32(values) => Column::F32(values),
            Self::I64(values) => Column::I64(values),
            Self::Bool(values) => Column::Bool(values),
        }
    }

    /// Replaces the elements. Those of another type change nothing.
    pub(super) fn copy_from(&mut self, column: Column<'_>) {
        match (self, column) {
            (Self::F32(own), Column::F32(values)) => values.clone_into(own),
            (Self::I64(own), Column::I64(values)) => values.clone_into(own),
            (Self::I64(own), Column::U32(values)) => {
                own.clear();
                own.extend(values.iter().map(|&value| i64::from(value)));
            }
            (Self::Bool(own), Column::Bool(values)) => values.clone_into(own),
            (Self::F32(_) | Self::I64(_) | Self::Bool(_), _) => {}
        }
    }

    /// Appends elements. Those of another type change nothing.
    pub(super) fn append(&mut self, more: &Self) {
        match (self, more) {
            (Self::F32(own), Self::F32(more)) => own.extend_from_slice(more),
            (Self::I64(own), Self::I64(more)) => own.extend_from_slice(more),
            (Self::Bool(own), Self::Bool(more)) => own.extend_from_slice(more),
            (Self::F32(_) | Self::I64(_) | Self::Bool(_), _) => {}
        }
    }

    /// Zeros of a type.
    pub(super) fn zeros(kind: &TensorType) -> Self {
        let count = kind.elements();
        match kind.element {
            Element::F32 => Self::F32(vec![0.0; count]),
            Element::I64 => Self::I64(vec![0; count]),
            Element::Bool => Self::Bool(vec![false; count]),
        }
    }

    /// Changes the number of elements; further ones are zeros. Keeps the memory of more elements.
    pub(super) fn resize(&mut self, count: usize) {
        match self {
            Self::F32(values) => values.resize(count, 0.0),
            Self::I64(values) => values.resize(count, 0),
            Self::Bool(values) => values.resize(count, false),
        }
    }

    /// The floats; empty for other elements, which shape inference has excluded where this is used.
    pub(super) fn f32(&self) -> &[f32] {
        match self {
            Self::F32(values) => values,
            Self::I64(_) | Self::Bool(_) => &[],
        }
    }

    pub(super) fn f32_mut(&mut self) -> &mut [f32] {
        match self {
            Self::F32(values) => values,
            Self::I64(_) | Self::Bool(_) => &mut [],
        }
    }

    /// The integers; as [`Self::f32`].
    pub(super) fn i64(&self) -> &[i64] {
        match self {
            Self::I64(values) => values,
            Self::F32(_) | Self::Bool(_) => &[],
        }
    }

    pub(super) fn i64_mut(&mut self) -> &mut [i64] {
        match self {
            Self::I64(values) => values,
            Self::F32(_) | Self::Bool(_) => &mut [],
        }
    }

    /// The truth values; as [`Self::f32`].
    pub(super) fn bool(&self) -> &[bool] {
        match self {
            Self::Bool(values) => values,
            Self::F32(_) | Self::I64(_) => &[],
        }
    }

    pub(super) fn bool_mut(&mut self) -> &mut [bool] {
        match self {
            Self::Bool(values) => values,
            Self::F32(_) | Self::I64(_) => &mut [],
        }
    }
}

/// An input or result of a node: its sizes and its elements.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a> {
    pub(super) shape: &'a [usize],
    pub(super) tensor: &'a Tensor,
}

impl<'a> Operand<'a> {
    pub(super) fn f32(&self) -> &'a [f32] {
        self.tensor.f32()
    }

    pub(super) fn i64(&self) -> &'a [i64] {
        self.tensor.i64()
    }
}
