//! What an app implements: conditions, key store, events. Called from any thread, and never with a lock held.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use client_sdk::journal::JournalError;
use client_sdk::runner;
use zeroize::Zeroizing;

use crate::conditions::DeviceConditions;
use crate::error::TributaryError;

/// What an app's own code threw or returned.
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

/// The device's key store: it keeps two small secrets of one journal, `journal-key` and `journal-generation`.
///
/// Called from any thread, one call at a time. No backup may restore the secrets to an earlier state, and no other journal may
/// use the same.
#[cfg_attr(feature = "uniffi", uniffi::export(with_foreign))]
pub trait KeyStore: Send + Sync {
    /// The bytes last saved under this name; nothing if none ever were.
    ///
    /// # Errors
    /// [`CallbackError`] if they cannot be read; a store that is locked or was emptied must not say that there is nothing.
    fn load(&self, name: String) -> Result<Option<Vec<u8>>, CallbackError>;

    /// Replaces them. Once this returns, they survive a crash. Called with every record of the journal.
    ///
    /// # Errors
    /// [`CallbackError`]: then the journal takes nothing more until the participant is started again.
    fn save(&self, name: String, secret: Vec<u8>) -> Result<(), CallbackError>;
}

/// Told of everything that happens, in order, on the participant's thread; must return at once.
#[cfg_attr(feature = "uniffi", uniffi::export(with_foreign))]
pub trait EventListener: Send + Sync {
    /// The event's name in snake case, and its fields as a JSON object.
    ///
    /// # Errors
    /// [`CallbackError`], which is ignored: events tell, and decide nothing.
    fn on_event(&self, name: String, fields: String) -> Result<(), CallbackError>;
}

/// What an app implements; each may be left out.
#[derive(Clone, Default)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Record))]
pub struct Callbacks {
    /// What the device is like. Default: not told; the participant then works whenever it runs, unless `device_conditions` of the options
    /// say otherwise.
    #[cfg_attr(feature = "uniffi", uniffi(default = None))]
    pub conditions: Option<Arc<dyn DeviceConditions>>,
    /// Default: files beside the journal's folder.
    #[cfg_attr(feature = "uniffi", uniffi(default = None))]
    pub key_store: Option<Arc<dyn KeyStore>>,
    /// Default: nobody is told.
    #[cfg_attr(feature = "uniffi", uniffi(default = None))]
    pub events: Option<Arc<dyn EventListener>>,
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Calls the app's code, in which calls that wait are refused: the thread they wait for may be this one.
pub(crate) fn call<T>(code: impl FnOnce() -> T) -> T {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            IN_CALLBACK.set(self.0);
        }
    }
    let _reset = Reset(IN_CALLBACK.replace(true));
    code()
}

/// Refuses a call that waits, if it is made by the app's code in a callback.
pub(crate) fn refuse_in_callback() -> Result<(), TributaryError> {
    if IN_CALLBACK.get() { Err(TributaryError::InCallback) } else { Ok(()) }
}

/// The app's key store as the SDK uses it.
pub(crate) struct Kept(pub(crate) Arc<dyn KeyStore>);

impl runner::KeyStore for Kept {
    fn load(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, JournalError> {
        let found = call(|| self.0.load(name.to_owned())).map_err(|error| failed("read", name, error))?;
        Ok(found.map(Zeroizing::new))
    }

    fn save(&self, name: &str, bytes: &[u8]) -> Result<(), JournalError> {
        call(|| self.0.save(name.to_owned(), bytes.to_vec())).map_err(|error| failed("write", name, error))
    }
}

fn failed(what: &str, name: &str, error: CallbackError) -> JournalError {
    JournalError::io(format!("{what} {name:?} in the device's key store"), io::Error::other(error))
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
