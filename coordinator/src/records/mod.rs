//! Signed records: the audit log, its event feed, and provenance of model versions.

pub(crate) mod all_tasks;
pub(crate) mod audit;
pub(crate) mod event_feed;
pub(crate) mod provenance;
pub(crate) mod signing;
