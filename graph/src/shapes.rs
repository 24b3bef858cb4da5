//! Element types and sizes of a graph's values.

use crate::element::Element;
use crate::model::ValueId;

/// Maximum number of axes of a tensor.
pub const MAX_RANK: usize = 8;
/// Maximum number of elements of a tensor.
pub const MAX_ELEMENTS: usize = 1 << 28;

/// Type and sizes of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// Type of the elements.
    pub element: Element,
    /// Number of elements along each axis, outermost first; empty for a single element.
    pub shape: Vec<usize>,
}

impl TensorType {
    /// A tensor of floats.
    #[must_use]
    pub fn f32(shape: Vec<usize>) -> Self {
        Self { element: Element::F32, shape }
    }

    /// Number of elements. At most [`MAX_ELEMENTS`] in the result of [`crate::infer`].
    #[must_use]
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Number of axes of the tensor.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }
}

/// Type and sizes of every value of a graph, for one batch and one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shapes(pub(crate) Vec<TensorType>);

impl Shapes {
    /// Type and sizes of a value.
    ///
    /// # Panics
    /// If the graph has no value of this number.
    #[must_use]
    pub fn get(&self, value: ValueId) -> &TensorType {
        &self.0[value.0 as usize]
    }

    /// Number of elements of a value.
    ///
    /// # Panics
    /// As [`Self::get`].
    #[must_use]
    pub fn elements(&self, value: ValueId) -> usize {
        self.get(value).elements()
    }

    /// All values in order.
    #[must_use]
    pub fn all(&self) -> &[TensorType] {
        &self.0
    }
}
