//! Interfaces that an app implements: conditions, key store, events, an HTTP client. They are called from any thread.
//! The key store is called while the journal, and perhaps a checkpoint, is locked. The others are called without locks.

use std::io;
use std::sync::Arc;

use client_sdk::journal::JournalError;
use client_sdk::runner;
use zeroize::Zeroizing;

use super::callback::{CallbackError, Place, call_in};
use super::conditions::DeviceConditions;
use super::http_client::HttpClient;
#[cfg(doc)]
use crate::error::TributaryError;

/// The device's key store: it keeps two small secrets of one journal, `journal-key` and `journal-generation`.
///
/// Called from any thread, one call at a time, during a write to the journal. It must not use a job or a machine: their
/// calls that need the journal are rejected ([`TributaryError::InCallback`]). Backups must exclude the secrets, and
/// each journal needs its own.
#[cfg_attr(feature = "uniffi", uniffi::export(with_foreign))]
pub trait KeyStore: Send + Sync {
    /// The bytes last saved under this name; null before the first save.
    ///
    /// # Errors
    /// [`CallbackError`] if they cannot be read. A locked or emptied store must return this error instead of null.
    fn load(&self, name: String) -> Result<Option<Vec<u8>>, CallbackError>;

    /// Replaces them. Once this returns, they survive a crash. Called with every record of the journal.
    ///
    /// # Errors
    /// [`CallbackError`]: then the journal rejects further records until the participant is restarted.
    fn save(&self, name: String, secret: Vec<u8>) -> Result<(), CallbackError>;
}

/// Receives all events, in order, on the participant's thread; must return immediately.
#[cfg_attr(feature = "uniffi", uniffi::export(with_foreign))]
pub trait EventListener: Send + Sync {
    /// The event's name in snake case, and its fields as a JSON object.
    ///
    /// # Errors
    /// [`CallbackError`], which is ignored: events are for information only.
    fn on_event(&self, name: String, fields: String) -> Result<(), CallbackError>;
}

/// Callbacks of an app; each may be left out.
#[derive(Clone, Default)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Record))]
pub struct Callbacks {
    /// The state of the device. By default the participant works whenever it runs, unless `device_conditions` of the
    /// options forbid it.
    #[cfg_attr(feature = "uniffi", uniffi(default = None))]
    pub conditions: Option<Arc<dyn DeviceConditions>>,
    /// Default: files next to the journal's folder.
    #[cfg_attr(feature = "uniffi", uniffi(default = None))]
    pub key_store: Option<Arc<dyn KeyStore>>,
    /// Default: events are dropped.
    #[cfg_attr(feature = "uniffi", uniffi(default = None))]
    pub events: Option<Arc<dyn EventListener>>,
    /// Default: the library's own HTTPS, where it was built with it.
    #[cfg_attr(feature = "uniffi", uniffi(default = None))]
    pub http_client: Option<Arc<dyn HttpClient>>,
}

/// The app's key store as the SDK uses it.
pub(crate) struct Kept(pub(crate) Arc<dyn KeyStore>);

impl runner::KeyStore for Kept {
    fn load(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, JournalError> {
        let found =
            call_in(Place::KeyStore, || self.0.load(name.to_owned())).map_err(|error| failed("read", name, error))?;
        Ok(found.map(Zeroizing::new))
    }

    fn save(&self, name: &str, bytes: &[u8]) -> Result<(), JournalError> {
        call_in(Place::KeyStore, || self.0.save(name.to_owned(), bytes.to_vec()))
            .map_err(|error| failed("write", name, error))
    }
}

fn failed(what: &str, name: &str, error: CallbackError) -> JournalError {
    JournalError::io(format!("{what} {name:?} in the device's key store"), io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::callback::{call, refuse_in_callback, refuse_in_key_store};

    /// Records the results of its own calls.
    #[derive(Default)]
    struct Notes(std::sync::Mutex<Vec<[bool; 2]>>);

    impl Notes {
        fn note(&self) {
            self.0.lock().unwrap().push([refuse_in_callback().is_err(), refuse_in_key_store().is_err()]);
        }
    }

    impl KeyStore for Notes {
        fn load(&self, _: String) -> Result<Option<Vec<u8>>, CallbackError> {
            self.note();
            Ok(None)
        }

        fn save(&self, _: String, _: Vec<u8>) -> Result<(), CallbackError> {
            self.note();
            Ok(())
        }
    }

    #[test]
    fn a_key_store_may_do_less_than_another_callback() {
        call(|| assert_eq!(refuse_in_key_store(), Ok(()), "a training saves checkpoints"));
        let notes = Arc::new(Notes::default());
        let kept = Kept(Arc::clone(&notes) as Arc<dyn KeyStore>);
        runner::KeyStore::load(&kept, "journal-key").unwrap();
        // A checkpoint of a training is written.
        call(|| runner::KeyStore::save(&kept, "journal-generation", &[1])).unwrap();
        assert_eq!(*notes.0.lock().unwrap(), [[true; 2]; 2]);
        assert_eq!(refuse_in_callback(), Ok(()));
    }
}
