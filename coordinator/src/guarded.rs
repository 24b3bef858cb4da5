//! A value behind a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value behind a lock that a panic does not close: each call that changes the value leaves it valid, whatever comes of the
/// next.
#[derive(Debug, Default)]
pub(crate) struct Guarded<T: ?Sized>(Mutex<T>);

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
}

impl<T: ?Sized> Guarded<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for one closure, so that the lock is not held while anything is waited for.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.lock())
    }
}
