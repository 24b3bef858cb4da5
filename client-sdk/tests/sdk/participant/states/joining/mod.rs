//! States before a round.

mod batch;
mod eligibility;
pub(in crate::participant) mod renew;
mod replaced;
