//! States before a round: enrolment, renewal, check-ins, and how a participant joins a session.

mod check_in;
mod eligibility;
mod enroll;
mod invited;
pub(super) mod join;
mod join_batch;
pub(in crate::participant) mod origin;
pub(in crate::participant) mod renew;
mod replaced;
