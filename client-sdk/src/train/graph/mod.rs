//! Training of graphs on one CPU core.
//!
//! An [`executor`] computes a graph's values and gradients; the losses, the optimizer and the loop over batches are shared
//! with the ready models.

mod context;
mod examples;
mod executor;
mod learner;
mod loss;
mod math;
mod ops;
mod packing;
mod product;
mod tensor;
mod verify;
mod walk;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod imported;
#[cfg(test)]
mod tests;

pub(super) use self::examples::check;
pub(super) use self::learner::GraphLearner;
pub use self::verify::{Derivative, GradientCheck, Verified, verified, verify_gradients};
pub use self::verify::{GraphInputs, GraphOutput, graph_gradient, graph_output};
