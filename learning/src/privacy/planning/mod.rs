//! Plans: the noise required for a guarantee, and a plan's cost.

pub(super) mod choices;
mod draws;
mod own;
pub mod plan;
mod planned;
pub(super) mod task;
pub(super) mod warnings;
