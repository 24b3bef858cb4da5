//! Arrays of Python as examples of a graph.

use client_sdk::train::Column;
use client_sdk::{Dataset, Elements, Targets};
use numpy::{Element, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::errors::UpdateError;

/// An input of all examples, flat.
#[derive(FromPyObject)]
pub(crate) enum GivenColumn<'py> {
    Floats(PyReadonlyArray1<'py, f32>),
    Integers(PyReadonlyArray1<'py, i64>),
    Truths(PyReadonlyArray1<'py, bool>),
}

impl GivenColumn<'_> {
    fn owned(&self) -> PyResult<Elements> {
        match self {
            Self::Floats(values) => owned(values).map(Elements::F32),
            Self::Integers(values) => owned(values).map(Elements::I64),
            Self::Truths(values) => owned(values).map(Elements::Bool),
        }
    }

    /// Borrows the elements.
    pub(crate) fn column(&self) -> PyResult<Column<'_>> {
        match self {
            Self::Floats(values) => values.as_slice().map(Column::F32).map_err(|_| not_contiguous()),
            Self::Integers(values) => values.as_slice().map(Column::I64).map_err(|_| not_contiguous()),
            Self::Truths(values) => values.as_slice().map(Column::Bool).map_err(|_| not_contiguous()),
        }
    }
}

/// The targets of all examples, flat.
#[derive(FromPyObject)]
pub(crate) enum GivenTargets<'py> {
    Classes(PyReadonlyArray1<'py, u32>),
    Numbers(PyReadonlyArray1<'py, f32>),
}

/// The inputs in the graph's order, targets, the number of examples, and the length of their sequences.
#[derive(FromPyObject)]
pub(crate) struct GivenExamples<'py>(Vec<GivenColumn<'py>>, GivenTargets<'py>, usize, usize);

impl GivenExamples<'_> {
    /// A copy of the examples.
    pub(crate) fn dataset(self) -> PyResult<Dataset> {
        let Self(inputs, targets, count, length) = self;
        let targets = match targets {
            GivenTargets::Classes(classes) => Targets::Classes(owned(&classes)?),
            GivenTargets::Numbers(numbers) => Targets::Numbers(owned(&numbers)?),
        };
        let inputs = inputs.iter().map(GivenColumn::owned).collect::<PyResult<_>>()?;
        Ok(Dataset::Tensors { inputs, targets, count, length })
    }
}

/// A copy of an array: with the interpreter's lock, since any of its threads may write to the array.
pub(crate) fn owned<T: Element + Copy>(array: &PyReadonlyArray1<'_, T>) -> PyResult<Vec<T>> {
    array.as_slice().map(<[T]>::to_vec).map_err(|_| not_contiguous())
}

fn not_contiguous() -> PyErr {
    UpdateError::new_err("the array is not contiguous")
}
