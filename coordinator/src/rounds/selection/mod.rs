//! Selection of participants: candidates, invitations and fixed batches.

pub(crate) mod batches;
pub(crate) mod contests;
pub(crate) mod eligible;
pub(crate) mod invitations;
