//! What the participant's thread says, and what the app sets for it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::job::Job;
use crate::conditions::DeviceState;
use crate::participant::{Outcome, ParticipantError};

/// How a participant ends.
pub type End = Result<Outcome, ParticipantError>;

/// Sent by the participant's thread.
pub(super) enum Said {
    Job(Box<Job>),
    Ended(End),
}

/// What the app sets while the participant runs.
#[derive(Default)]
pub(super) struct Switches {
    pub(super) paused: AtomicBool,
    pub(super) examples: AtomicU64,
    /// As the app reported it here.
    pub(super) device: Mutex<Option<DeviceState>>,
}
