//! Tensors of jobs and models.

use std::ffi::{CString, c_char};

use super::arguments::{can_give, give};
use super::code::TributaryCode;
use crate::error::TributaryError;
use crate::tensors::Tensor;

/// A tensor of a job's model, or of a model. The pointers belong to the job or the model.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TributaryTensor {
    /// Unique within the model.
    pub name: *const c_char,
    /// Dimensions, outermost first.
    pub shape: *const u64,
    /// Number of dimensions; 0 for a scalar.
    pub dimensions: usize,
    /// Index of its first element in the flat vector of parameters (row-major).
    pub offset: usize,
    /// Number of its elements.
    pub count: usize,
}

/// Targets of a [`TributaryTensor`]'s pointers.
pub(super) struct NamedTensor {
    name: CString,
    shape: Vec<u64>,
    offset: usize,
    count: usize,
}

/// A text for C.
pub(super) fn no_nul(text: String) -> Result<CString, TributaryError> {
    CString::new(text).map_err(|error| TributaryError::Failed(error.to_string()))
}

/// Stores the targets of pointers.
pub(super) fn named(tensors: Vec<Tensor>) -> Result<Vec<NamedTensor>, TributaryError> {
    let fits = |number: u64| usize::try_from(number).map_err(|error| TributaryError::Failed(error.to_string()));
    let named = tensors.into_iter().map(|Tensor { name, shape, offset, count }| {
        Ok(NamedTensor { name: no_nul(name)?, shape, offset: fits(offset)?, count: fits(count)? })
    });
    named.collect()
}

/// Gives the tensor of this number; NOTHING beyond the last.
pub(super) fn give_tensor(
    tensors: &[NamedTensor],
    number: usize,
    tensor: *mut TributaryTensor,
) -> Result<TributaryCode, TributaryError> {
    can_give(tensor, "tensor")?;
    let Some(NamedTensor { name, shape, offset, count }) = tensors.get(number) else {
        return Ok(TributaryCode::Nothing);
    };
    let (name, dimensions, shape) = (name.as_ptr(), shape.len(), shape.as_ptr());
    give(TributaryTensor { name, shape, dimensions, offset: *offset, count: *count }, tensor, "tensor")?;
    Ok(TributaryCode::Ok)
}
