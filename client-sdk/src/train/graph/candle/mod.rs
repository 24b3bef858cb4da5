//! Graphs on candle's devices: a GPU, or candle's CPU in tests.
//!
//! candle computes floats. Integers and truth values are computed on the CPU by the operations of [`ops`](super::ops), so
//! that every graph runs on every device. Only operations of candle with right gradients are used. Losses are computed on
//! the CPU, in 32 bits.

mod executor;
mod failure;
mod learner;
mod ops;
mod pass;
mod tape;
mod value;

#[cfg(test)]
pub(super) mod tests;

pub(in crate::train) use self::learner::CandleGraph;
