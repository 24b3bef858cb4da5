//! Names, shapes and offsets of a model's tensors in one flat vector of `f32`.
//!
//! A [`Layout`] is validated once, when a task is created or a model is read; later code may trust its numbers. Values are always in layout
//! order, row-major, so a flat index means the same on every device.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::vectorized::vectorized;

/// Maximum number of tensors in a model.
pub const MAX_TENSORS: usize = 4096;
/// Maximum number of parameters in a model (1 GiB of `f32`).
pub const MAX_PARAMETERS: u64 = 1 << 28;
/// Maximum length of a tensor name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Maximum number of dimensions of a tensor.
pub const MAX_DIMENSIONS: usize = 8;

/// Name and shape of one tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    /// Unique within the model, for example `fc1.weight`.
    pub name: String,
    /// Dimensions, outermost first; empty for a scalar.
    pub shape: Vec<u64>,
}

/// Reasons a list of tensors is not a valid model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Zero tensors, or zero elements.
    #[error("the model has no parameters; name at least one tensor with at least one element")]
    Empty,
    /// More tensors than [`MAX_TENSORS`].
    #[error("the model has {0} tensors; at most {MAX_TENSORS} are possible")]
    TooManyTensors(usize),
    /// More elements than [`MAX_PARAMETERS`].
    #[error("the model has more than {MAX_PARAMETERS} parameters (2^28), the most that is possible")]
    TooManyParameters,
    /// An empty, too long or not printable ASCII name.
    #[error("tensor name {0:?} is not 1 to {MAX_NAME_BYTES} printable ASCII characters without blanks")]
    BadName(String),
    /// Two tensors have the same name.
    #[error("tensor name {0:?} occurs twice")]
    DuplicateName(String),
    /// A dimension is zero, or there are too many.
    #[error("tensor {0:?} must have at most {MAX_DIMENSIONS} dimensions, each at least 1")]
    BadShape(String),
}

/// A model's tensors and the position of each in the flat vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    tensors: Vec<TensorSpec>,
    /// Tensor `i` occupies `offsets[i]..offsets[i + 1]`; one entry longer than `tensors`.
    offsets: Vec<usize>,
}

impl Layout {
    /// Checks names, shapes and size.
    ///
    /// # Errors
    /// Any [`LayoutError`]. Memory does not depend on the claimed size.
    pub fn new(tensors: Vec<TensorSpec>) -> Result<Self, LayoutError> {
        if tensors.is_empty() {
            return Err(LayoutError::Empty);
        }
        if tensors.len() > MAX_TENSORS {
            return Err(LayoutError::TooManyTensors(tensors.len()));
        }
        let mut names = std::collections::HashSet::new();
        let mut offsets = Vec::with_capacity(tensors.len() + 1);
        let mut total: u64 = 0;
        offsets.push(0);
        for tensor in &tensors {
            let name = &tensor.name;
            if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(LayoutError::BadName(name.clone()));
            }
            if !names.insert(name.as_str()) {
                return Err(LayoutError::DuplicateName(name.clone()));
            }
            if tensor.shape.len() > MAX_DIMENSIONS || tensor.shape.contains(&0) {
                return Err(LayoutError::BadShape(name.clone()));
            }
            total = tensor
                .shape
                .iter()
                .try_fold(1_u64, |product, &dimension| product.checked_mul(dimension))
                .and_then(|elements| total.checked_add(elements))
                .filter(|&total| total <= MAX_PARAMETERS)
                .ok_or(LayoutError::TooManyParameters)?;
            // At most 2^28, which fits any `usize`.
            offsets.push(usize::try_from(total).map_err(|_| LayoutError::TooManyParameters)?);
        }
        Ok(Self { tensors, offsets })
    }

    /// An empty layout, for a task without a model, such as an analysis. An empty list of tensors is otherwise rejected.
    #[must_use]
    pub fn none() -> Self {
        Self { tensors: Vec::new(), offsets: vec![0] }
    }

    /// The tensors, in layout order.
    #[must_use]
    pub fn tensors(&self) -> &[TensorSpec] {
        &self.tensors
    }

    /// Number of parameters; 0 only without a model ([`Self::none`]).
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.last().copied().unwrap_or_default()
    }

    /// Whether it is the layout of a task without a model ([`Self::none`]).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Position of tensor `index` in the flat vector.
    ///
    /// # Panics
    /// If `index` is out of range.
    #[must_use]
    pub fn range(&self, index: usize) -> Range<usize> {
        self.offsets[index]..self.offsets[index + 1]
    }

    /// Index of the tensor with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.tensors.iter().position(|tensor| tensor.name == name)
    }
}

/// A layout and one value per parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    layout: Arc<Layout>,
    values: Vec<f32>,
}

/// The length of a flat vector does not match the layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("got {got} parameters where the layout has {expected}")]
pub struct WrongLength {
    /// Length of the layout.
    pub expected: usize,
    /// Length of the vector.
    pub got: usize,
}

/// Parameters of another model than expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these parameters belong to a model with other tensors")]
pub struct WrongLayout;

/// Number of values checked at once.
const FINITE_BLOCK: usize = 256;

/// Index of the first NaN or infinity.
#[must_use]
pub fn first_not_finite(values: &[f32]) -> Option<usize> {
    // Whole blocks are checked without a branch, which is several times faster; only a bad block is searched.
    let good = vectorized(
        #[inline(always)]
        || {
            let is_good = |block: &&[f32]| block.iter().fold(true, |all, value| all & value.is_finite());
            values.chunks(FINITE_BLOCK).take_while(is_good).count()
        },
    );
    let start = values.len().min(good * FINITE_BLOCK);
    values[start..].iter().position(|value| !value.is_finite()).map(|index| start + index)
}

impl Parameters {
    /// # Errors
    /// [`WrongLength`].
    pub fn new(layout: Arc<Layout>, values: Vec<f32>) -> Result<Self, WrongLength> {
        if values.len() != layout.len() {
            return Err(WrongLength { expected: layout.len(), got: values.len() });
        }
        Ok(Self { layout, values })
    }

    #[must_use]
    pub fn zeros(layout: Arc<Layout>) -> Self {
        let values = vec![0.0; layout.len()];
        Self { layout, values }
    }

    #[must_use]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// All values, in layout order.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// All values, flat, to change.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    #[must_use]
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }

    /// The values of tensor `index`, row-major.
    ///
    /// # Panics
    /// If `index` is out of range.
    #[must_use]
    pub fn tensor(&self, index: usize) -> &[f32] {
        &self.values[self.layout.range(index)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, shape: &[u64]) -> TensorSpec {
        TensorSpec { name: name.to_owned(), shape: shape.to_vec() }
    }

    #[test]
    fn places_tensors_one_after_the_other() {
        let layout = Layout::new(vec![spec("a", &[2, 3]), spec("scalar", &[]), spec("b", &[4])]).unwrap();
        assert_eq!(layout.len(), 11);
        assert_eq!((layout.range(0), layout.range(1), layout.range(2)), (0..6, 6..7, 7..11));
        assert_eq!((layout.find("b"), layout.find("c")), (Some(2), None));

        let parameters = Parameters::new(Arc::new(layout), (0..11_u8).map(f32::from).collect()).unwrap();
        assert_eq!(parameters.tensor(2), [7.0, 8.0, 9.0, 10.0]);
    }

    #[test]
    fn a_task_without_a_model_has_no_tensors_and_no_values() {
        let none = Layout::none();
        assert_eq!((none.len(), none.is_empty(), none.tensors()), (0, true, &[][..]));
        assert!(Parameters::zeros(Arc::new(none)).values().is_empty());
        assert!(!Layout::new(vec![spec("a", &[3])]).unwrap().is_empty());
    }

    #[test]
    fn refuses_what_is_not_a_model() {
        let error = |tensors| Layout::new(tensors).unwrap_err();
        assert_eq!(error(vec![]), LayoutError::Empty);
        assert_eq!(error(vec![spec("a", &[1]); 4097]), LayoutError::TooManyTensors(4097));
        assert_eq!(error(vec![spec("a", &[1 << 20, 1 << 20])]), LayoutError::TooManyParameters);
        assert_eq!(error(vec![spec("a", &[u64::MAX, u64::MAX])]), LayoutError::TooManyParameters);
        assert_eq!(error(vec![spec("a", &[1 << 28]), spec("b", &[1])]), LayoutError::TooManyParameters);
        assert_eq!(error(vec![spec("a", &[1]), spec("a", &[2])]), LayoutError::DuplicateName("a".into()));
        assert_eq!(error(vec![spec("a", &[3, 0])]), LayoutError::BadShape("a".into()));
        assert_eq!(error(vec![spec("a", &[1; 9])]), LayoutError::BadShape("a".into()));
        for name in ["", "a b", "naïve", "a\n"] {
            assert_eq!(error(vec![spec(name, &[1])]), LayoutError::BadName(name.into()));
        }
    }

    #[test]
    fn values_must_fit_the_layout() {
        let layout = Arc::new(Layout::new(vec![spec("a", &[3])]).unwrap());
        assert_eq!(Parameters::new(layout, vec![0.0; 2]).unwrap_err(), WrongLength { expected: 3, got: 2 });
    }

    #[test]
    fn finds_the_first_value_that_is_not_finite() {
        assert_eq!(first_not_finite(&[0.0, f32::MAX]), None);
        assert_eq!(first_not_finite(&[0.0, f32::NEG_INFINITY, f32::NAN]), Some(1));
        assert_eq!(first_not_finite(&[]), None);
        for index in [0, 255, 256, 511, 512, 599] {
            let mut values = vec![1.0; 600];
            assert_eq!(first_not_finite(&values), None);
            values[index] = f32::NAN;
            values[599] = f32::INFINITY;
            assert_eq!(first_not_finite(&values), Some(index));
        }
    }
}
