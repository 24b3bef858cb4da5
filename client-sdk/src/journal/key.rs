//! The key that seals a journal: from the device's key store, or from a file outside the journal's folder.

use std::io::{self, Write as _};
use std::path::Path;

use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::Zeroizing;

use super::{JournalError, disk};

/// 256 random bits. The key cannot be printed or copied; it is erased when dropped.
pub struct JournalKey(Zeroizing<[u8; Self::BYTES]>);

impl JournalKey {
    /// Length of a key in bytes.
    pub const BYTES: usize = 32;

    /// A key kept by the app, for example in the device's key store. It must be random, and used for one journal only.
    #[must_use]
    pub fn new(bytes: Zeroizing<[u8; Self::BYTES]>) -> Self {
        Self(bytes)
    }

    /// Reads a key from a file.
    ///
    /// # Errors
    /// [`JournalError::Io`] if the file cannot be read, is missing or does not hold 32 bytes.
    pub fn read(path: &Path) -> Result<Self, JournalError> {
        let failed = |error| JournalError::io(format!("read its key {}", path.display()), error);
        let bytes = Zeroizing::new(std::fs::read(path).map_err(failed)?);
        let key = <[u8; Self::BYTES]>::try_from(bytes.as_slice());
        let wrong = || {
            let detail = format!("it holds {} bytes, a key has {}", bytes.len(), Self::BYTES);
            failed(io::Error::new(io::ErrorKind::InvalidData, detail))
        };
        key.map(|key| Self(Zeroizing::new(key))).map_err(|_| wrong())
    }

    /// Creates a key in an owner-only file, overwriting it.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn make(path: &Path) -> Result<Self, JournalError> {
        let failed = |error| JournalError::io(format!("make its key {}", path.display()), error);
        let mut key = Zeroizing::new([0; Self::BYTES]);
        SystemRandom::new().fill(&mut *key).map_err(|_| failed(no_randomness()))?;
        let mut draft = path.as_os_str().to_owned();
        draft.push(".draft");
        disk::replace(path, Path::new(&draft), |file| file.write_all(&*key)).map_err(failed)?;
        disk::sync_folder(disk::folder_of(path)).map_err(failed)?;
        Ok(Self(key))
    }

    /// Derives a unique key for one write of one record: HKDF-SHA-256, where `id` is random for each.
    pub(super) fn derive(&self, name: &str, id: &[u8; 32]) -> Zeroizing<[u8; Self::BYTES]> {
        let mut key = Zeroizing::new([0; Self::BYTES]);
        let root = Salt::new(HKDF_SHA256, b"tributary/journal/1").extract(&*self.0);
        #[expect(clippy::expect_used, reason = "the length is the hash's")]
        root.expand(&[id, name.as_bytes()], HKDF_SHA256)
            .and_then(|drawn| drawn.fill(&mut *key))
            .expect("32 bytes can be derived");
        key
    }
}

/// The error for a system without randomness.
pub(super) fn no_randomness() -> io::Error {
    io::Error::other("the system gives no randomness")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_file_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.key");
        assert!(JournalKey::read(&path).is_err());
        let made = JournalKey::make(&path).unwrap();
        let read = JournalKey::read(&path).unwrap();
        assert_eq!(made.derive("round", &[1; 32]), read.derive("round", &[1; 32]));
        assert_ne!(made.derive("round", &[1; 32]), read.derive("round", &[2; 32]), "another writing");
        assert_ne!(made.derive("round", &[1; 32]), read.derive("identity", &[1; 32]), "another record");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        std::fs::write(&path, b"short").unwrap();
        let error = JournalKey::read(&path).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("holds 5 bytes"), "{error}");
    }
}
