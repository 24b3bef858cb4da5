//! Training and predictions of graphs on one CPU core.
//!
//! An [`executor`] computes a graph's values and gradients; the losses, the optimizer and the loop over batches are shared
//! with the ready models. [`predict`] computes outputs alone.

mod context;
mod examples;
mod executor;
mod learner;
mod loss;
mod math;
mod measures;
mod memory;
mod ops;
mod packing;
mod predict;
mod product;
mod tensor;
mod verify;
mod walk;

#[cfg(test)]
mod exported;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod imported;
#[cfg(test)]
mod tests;

pub(super) use self::examples::check;
pub(super) use self::learner::GraphLearner;
pub(super) use self::measures::evaluate;
pub(super) use self::memory::chunk;
pub use self::predict::{GraphPredictor, NamedTensor};
pub use self::tensor::Tensor;
pub use self::verify::{Derivative, GradientCheck, Verified, verified, verify_gradients};
pub use self::verify::{GraphInputs, GraphOutput, graph_gradient, graph_output};
