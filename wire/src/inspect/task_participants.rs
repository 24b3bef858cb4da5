//! Participants eligible for a task.

use serde::{Deserialize, Serialize};

/// The participants that a task could have, as they are now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskParticipantsView {
    /// Enrolled participants that are eligible: not revoked, with the labels that the task requires, and below its limit of
    /// participations.
    pub eligible: u32,
    /// Participants that are checked in, and that its next round may draw.
    pub waiting: u32,
    /// Participants that are checked in and refuse the task, by reason.
    pub refusing: Vec<RefusalCount>,
}

/// How many participants refuse a task for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RefusalCount {
    /// The code of the reason, as in [`crate::participant::RefusalCode`].
    pub reason: String,
    pub participants: u32,
}
