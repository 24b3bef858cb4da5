//! Messages of the participant's thread, and state set by the app.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::jobs::job::Job;
use crate::conditions::DeviceState;
use crate::participant::{Outcome, ParticipantError};

/// How a participant ends.
pub type End = Result<Outcome, ParticipantError>;

/// Sent by the participant's thread.
pub(super) enum RunnerMessage {
    Job(Box<Job>),
    /// Wakes a caller that waits for a job; [`Ending`] has the outcome.
    Ended,
}

/// The outcome, once the participant has ended. Waiting for it does not block callers that wait for a job.
#[derive(Default)]
pub(super) struct Ending {
    end: Mutex<Option<End>>,
    is_there: Condvar,
}

impl Ending {
    /// Only the first outcome is stored.
    pub(super) fn put(&self, end: End) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(end);
        self.is_there.notify_all();
    }

    /// Waits for at most `limit`.
    pub(super) fn within(&self, limit: Duration) -> Option<End> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.is_there.wait_timeout_while(end, limit, |end| end.is_none());
        let (end, _) = waited.unwrap_or_else(PoisonError::into_inner);
        end.clone()
    }
}

/// State that the app sets while the participant runs.
#[derive(Default)]
pub(super) struct Switches {
    pub(super) paused: AtomicBool,
    pub(super) examples: AtomicU64,
    /// The device state, as reported by the app.
    pub(super) device: Mutex<Option<DeviceState>>,
}
