//! Training and predictions of graphs: on one CPU core, or on a device of candle.
//!
//! An [`executor`] computes a graph's values and gradients on the CPU, and `candle` those on a GPU. The losses, the optimizer
//! and the loop over batches are shared with the ready models. [`predict`] computes outputs alone, on the CPU.

#[cfg(feature = "candle")]
mod candle;
mod context;
mod examples;
mod executor;
mod kernels;
mod learner;
mod loss;
mod measures;
mod memory;
mod named;
mod ops;
mod predict;
mod statistics;
mod tensor;
mod verify;

#[cfg(test)]
mod exported;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod imported;
#[cfg(test)]
mod tests;

#[cfg(feature = "candle")]
pub(super) use self::candle::CandleGraph;
pub use self::examples::GraphInputs;
pub(super) use self::examples::check;
pub(super) use self::learner::GraphLearner;
pub(super) use self::measures::evaluate;
pub(super) use self::memory::{chunk, least_batch, training_chunk};
pub(crate) use self::named::{graph_of, in_order};
pub use self::predict::{GraphOutput, GraphPredictor, NamedTensor};
pub use self::tensor::Tensor;
pub use self::verify::{Derivative, GradientCheck, Verified, training_speed, verified};
pub use self::verify::{graph_gradient, verify_gradients, verify_gradients_on};
