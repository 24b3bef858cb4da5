//! The computation of a round: its plan, the work, and the progress of its training.

mod pause;
pub(super) mod plan;
pub(super) mod training_log;
pub(super) mod work;
