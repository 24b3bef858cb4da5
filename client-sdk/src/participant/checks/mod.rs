//! Requirements of an app and its participant on a task before they take part: security, provenance and sizes.

pub(super) mod graphs;
pub(super) mod policy;
pub(super) mod provenance;
pub(super) mod refused_tasks;
pub(super) mod size;
