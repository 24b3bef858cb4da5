//! The device side of a task: eligibility, local training, personalization and the codec of uploads.

pub(super) mod compression;
pub(super) mod fairness;
pub(super) mod local;
pub(super) mod local_optimizer;
pub(super) mod on_device;
pub(super) mod personalization;
pub(super) mod solver;
pub(super) mod training;
