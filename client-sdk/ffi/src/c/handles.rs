//! Handles: numbers that are given once, and the tables of their objects.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::TributaryError;

/// The next handle, of any kind: each number is given once, so a handle of one kind is invalid for another.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The objects of the handles of one kind.
pub(super) struct Table<T>(Mutex<BTreeMap<u64, Arc<T>>>);

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new handle.
    pub(super) fn put(&self, entry: Arc<T>) -> u64 {
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        self.entries().insert(handle, entry);
        handle
    }

    /// The handle's object. It lives on while a call uses it, even if another thread takes it.
    pub(super) fn get(&self, handle: u64) -> Result<Arc<T>, TributaryError> {
        self.entries().get(&handle).map(Arc::clone).ok_or(TributaryError::Closed)
    }

    /// Forgets the handle.
    pub(super) fn take(&self, handle: u64) -> Result<Arc<T>, TributaryError> {
        self.entries().remove(&handle).ok_or(TributaryError::Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_of_one_kind_and_stands_for_nothing_once_it_was_taken() {
        let (one, other) = (Table::new(), Table::new());
        let first = one.put(Arc::new("first"));
        let second = other.put(Arc::new("second"));
        assert!(first != second && first != 0);
        assert_eq!(*one.get(first).unwrap(), "first");
        assert_eq!(one.get(second), Err(TributaryError::Closed));
        let used = one.get(first).unwrap();
        assert_eq!(*one.take(first).unwrap(), "first");
        assert_eq!(*used, "first", "whoever uses it has it");
        assert_eq!(one.take(first), Err(TributaryError::Closed));
        assert_ne!(one.put(Arc::new("third")), first);
    }

    #[test]
    fn of_several_threads_that_take_a_handle_one_gets_it() {
        let table = Table::new();
        let handle = table.put(Arc::new("once"));
        let taken = std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| {
                scope.spawn(|| {
                    // A thread that looked the handle up earlier still holds its value.
                    let used = table.get(handle);
                    let taken = table.take(handle).is_ok();
                    assert!(used.is_ok_and(|used| *used == "once") || !taken);
                    usize::from(taken)
                })
            });
            threads.map(|thread| thread.join().unwrap()).iter().sum::<usize>()
        });
        assert_eq!(taken, 1);
    }
}
