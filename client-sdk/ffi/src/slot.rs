//! Where a participant and its jobs find the runner.

use std::sync::{Arc, PoisonError, RwLock};

use client_sdk::runner::Runner;

/// The runner, until the participant is closed.
pub(crate) struct Slot(RwLock<Option<Arc<Runner>>>);

impl Slot {
    pub(crate) fn new(runner: Runner) -> Self {
        Self(Some(Arc::new(runner)).into())
    }

    /// Returns the runner without holding the lock, so that a call waiting for a callback does not block a close.
    pub(crate) fn runner(&self) -> Option<Arc<Runner>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_examples(&self, examples: u64) {
        if let Some(runner) = self.runner() {
            runner.set_examples(examples);
        }
    }

    /// Takes it from the participant, which is closed then.
    pub(crate) fn take(&self) -> Option<Arc<Runner>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}
