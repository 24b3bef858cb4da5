//! The journal's two secrets in a store of the device.

use std::io;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::journal::{Generation, GenerationStore, JournalError, JournalKey};

/// The device's key store as an app offers it: Android's, a keychain, a secure element. It keeps two secrets of one
/// journal, each under its name (`KEY`, `GENERATION`); no backup may restore them to an earlier state.
pub trait KeyStore: Send + Sync {
    /// The bytes that were last saved under this name; `None` if none ever were.
    ///
    /// # Errors
    /// [`JournalError`] if they cannot be read. A store that was emptied or is locked must not report `None`.
    fn load(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, JournalError>;

    /// Replaces them. Once this returns, they survive a crash.
    ///
    /// # Errors
    /// [`JournalError`]; the journal rejects writes until it is opened again.
    fn save(&self, name: &str, bytes: &[u8]) -> Result<(), JournalError>;
}

impl dyn KeyStore {
    /// Name of the key that seals the journal: 32 bytes, written once.
    pub const KEY: &'static str = "journal-key";
    /// Name of the journal's latest state: 40 bytes, written with every record.
    pub const GENERATION: &'static str = "journal-generation";

    /// The key, if there is one.
    pub(super) fn key(&self) -> Result<Option<JournalKey>, JournalError> {
        let bytes = self.load(Self::KEY)?;
        let key = bytes.map(|bytes| exactly(Self::KEY, &bytes).map(Zeroizing::new)).transpose()?;
        Ok(key.map(JournalKey::new))
    }
}

/// The journal's generation in the store.
pub(super) struct Stored(pub(super) Arc<dyn KeyStore>);

impl GenerationStore for Stored {
    fn load(&self) -> Result<Option<Generation>, JournalError> {
        let name = <dyn KeyStore>::GENERATION;
        let bytes = self.0.load(name)?;
        bytes.map(|bytes| Ok(Generation::from_bytes(&exactly(name, &bytes)?))).transpose()
    }

    fn save(&self, generation: &Generation) -> Result<(), JournalError> {
        self.0.save(<dyn KeyStore>::GENERATION, &generation.to_bytes())
    }

    fn place(&self) -> String {
        "the device's key store".to_owned()
    }
}

fn exactly<const N: usize>(name: &str, bytes: &[u8]) -> Result<[u8; N], JournalError> {
    <[u8; N]>::try_from(bytes).map_err(|_| {
        let detail = format!("it has {} bytes where {N} were saved", bytes.len());
        let error = io::Error::new(io::ErrorKind::InvalidData, detail);
        JournalError::io(format!("read {name:?} in the device's key store"), error)
    })
}
