//! The journal's two secrets in a store of the device.

use zeroize::Zeroizing;

use crate::journal::JournalError;

/// The device's key store as an app offers it: Android's, a keychain, a secure element. It keeps two secrets of one
/// journal, each under its name (`KEY`, `GENERATION`). Backups must exclude them, since an earlier state is invalid.
pub trait KeyStore: Send + Sync {
    /// The bytes last saved under this name; `None` before the first save.
    ///
    /// # Errors
    /// [`JournalError`] if they cannot be read. An emptied or locked store must not report `None`.
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
}
