//! Participants' requests.

pub(super) mod abandon;
pub(super) mod abort_statements;
pub(super) mod announcements;
pub(super) mod answers;
pub(super) mod check_in;
pub(super) mod enroll;
pub(super) mod masked_input;
pub(super) mod parameters;
pub(super) mod renew;
