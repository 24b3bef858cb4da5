//! A value behind a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex without poisoning: each call leaves the value valid, even after a panic in another.
#[derive(Debug, Default)]
pub struct PoisonFreeMutex<T: ?Sized>(Mutex<T>);

impl<T> PoisonFreeMutex<T> {
    /// Puts a value behind a lock.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
}

impl<T: ?Sized> PoisonFreeMutex<T> {
    /// Locks the value; a panic in another holder does not poison it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks for one closure, so that the lock is never held across an await.
    pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.lock())
    }
}
