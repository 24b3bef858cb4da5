//! HTTPS connections to the coordinator, directly or through a forward proxy.

pub(super) mod advice;
pub(super) mod client;
