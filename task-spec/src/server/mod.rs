//! The coordinator's side of a task: selection, rounds, aggregation and the schedule.

pub(super) mod aggregation;
pub(super) mod gate;
pub(super) mod optimizer;
pub(super) mod retain;
pub(super) mod robust;
pub(super) mod rounds;
pub(super) mod schedule;
pub(super) mod secure_aggregation;
pub(super) mod selection;
