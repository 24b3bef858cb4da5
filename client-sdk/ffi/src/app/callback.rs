//! A call of the app's code: its error, and the library calls rejected during it.

use std::cell::Cell;

use crate::error::TributaryError;

/// Error of an app's own code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Error))]
pub enum CallbackError {
    /// With its reason.
    #[error("{reason}")]
    Failed {
        /// For a person to read.
        reason: String,
    },
}

#[cfg(feature = "uniffi")]
impl From<uniffi::UnexpectedUniFFICallbackError> for CallbackError {
    fn from(error: uniffi::UnexpectedUniFFICallbackError) -> Self {
        Self::Failed { reason: error.reason }
    }
}

/// The part of the app that a thread runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Outside of callbacks.
    App,
    Callback,
    /// A callback while the journal is locked.
    KeyStore,
}

thread_local! {
    static PLACE: Cell<Place> = const { Cell::new(Place::App) };
}

/// Calls the app's code in this place.
pub(crate) fn call_in<T>(place: Place, code: impl FnOnce() -> T) -> T {
    struct Reset(Place);
    impl Drop for Reset {
        fn drop(&mut self) {
            PLACE.set(self.0);
        }
    }
    let _reset = Reset(PLACE.replace(place.max(PLACE.get())));
    code()
}

/// Calls the app's code, in which calls that wait are refused: the thread they wait for may be this one.
pub(crate) fn call<T>(code: impl FnOnce() -> T) -> T {
    call_in(Place::Callback, code)
}

/// Whether this thread is in a callback.
pub(crate) fn is_in_callback() -> bool {
    PLACE.get() != Place::App
}

/// Refuses a call that waits, if it is made by the app's code in a callback.
pub(crate) fn refuse_in_callback() -> Result<(), TributaryError> {
    if is_in_callback() { Err(TributaryError::InCallback) } else { Ok(()) }
}

/// Refuses a call that needs the journal, if it is made by the app's key store: a training, which is a callback too, may save.
pub(crate) fn refuse_in_key_store() -> Result<(), TributaryError> {
    if PLACE.get() == Place::KeyStore { Err(TributaryError::InCallback) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_wait_are_refused_in_a_callback_alone() {
        assert_eq!(refuse_in_callback(), Ok(()));
        call(|| {
            call(|| assert_eq!(refuse_in_callback(), Err(TributaryError::InCallback)));
            assert_eq!(refuse_in_callback(), Err(TributaryError::InCallback));
        });
        assert_eq!(refuse_in_callback(), Ok(()));
        let thrown = std::panic::catch_unwind(|| call(|| panic!("thrown")));
        assert!(thrown.is_err());
        assert_eq!(refuse_in_callback(), Ok(()));
    }
}
