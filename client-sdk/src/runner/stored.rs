//! The journal's key and generation in the device's key store.

use std::io;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::key_store::KeyStore;
use crate::journal::{Generation, GenerationStore, JournalError, JournalKey};

impl dyn KeyStore {
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
