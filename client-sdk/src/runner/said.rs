//! What the participant's thread says, and what the app sets for it.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::job::Job;
use crate::conditions::DeviceState;
use crate::participant::{Outcome, ParticipantError};

/// How a participant ends.
pub type End = Result<Outcome, ParticipantError>;

/// Sent by the participant's thread.
pub(super) enum Said {
    Job(Box<Job>),
    /// Wakes who waits for a job; [`Ending`] says how.
    Ended,
}

/// How the participant ended, once it has. Whoever waits for it holds up nobody who waits for a job.
#[derive(Default)]
pub(super) struct Ending {
    end: Mutex<Option<End>>,
    is_there: Condvar,
}

impl Ending {
    /// The first one counts.
    pub(super) fn put(&self, end: End) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(end);
        self.is_there.notify_all();
    }

    /// Waits for it, `limit` at most.
    pub(super) fn within(&self, limit: Duration) -> Option<End> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.is_there.wait_timeout_while(end, limit, |end| end.is_none());
        let (end, _) = waited.unwrap_or_else(PoisonError::into_inner);
        end.clone()
    }
}

/// What the app sets while the participant runs.
#[derive(Default)]
pub(super) struct Switches {
    pub(super) paused: AtomicBool,
    pub(super) examples: AtomicU64,
    /// As the app reported it here.
    pub(super) device: Mutex<Option<DeviceState>>,
}
