//! Draw of a cohort.

pub(super) mod batches;
pub(super) mod sample;
pub(super) mod select;
pub(super) mod starved;
pub(super) mod waiting;
