//! The tensors and metrics of a model.

use client_sdk::learning::Layout;

/// A tensor of the model, and where it is in the flat vector of all parameters (row-major).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Record))]
pub struct Tensor {
    /// Unique within the model.
    pub name: String,
    /// Outermost dimension first; empty for a scalar.
    pub shape: Vec<u64>,
    /// Index of its first element in the flat vector.
    pub offset: u64,
    /// Number of its elements.
    pub count: u64,
}

/// A metric: of the training, such as `train_loss`, or of the model that it began with.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Record))]
pub struct Metric {
    /// One of the task's metrics; others are dropped.
    pub name: String,
    /// The mean over the examples; finite.
    pub value: f64,
    /// Number of examples measured.
    pub count: u64,
}

/// Where each tensor is in the flat vector.
pub(crate) fn tensors(layout: &Layout) -> Vec<Tensor> {
    let tensors = layout.tensors().iter().enumerate().map(|(number, tensor)| {
        let range = layout.range(number);
        let (offset, count) = (range.start as u64, range.len() as u64);
        Tensor { name: tensor.name.clone(), shape: tensor.shape.clone(), offset, count }
    });
    tensors.collect()
}
