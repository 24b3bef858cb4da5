//! A file that one process locks at a time.

use std::fs::{File, TryLockError};
use std::ops::{Deref, DerefMut};

/// A file locked by this process until dropped. A forked child shares the lock, and would keep it as long as it has the file open. So
/// the process with the lock releases it explicitly, and a child that drops its copy does not.
pub(crate) struct LockedFile {
    file: File,
    process: u32,
}

impl LockedFile {
    /// Locks the file exclusively, without waiting.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another process holds it, or another handle of this one.
    pub(crate) fn lock(file: File) -> Result<Self, TryLockError> {
        file.try_lock()?;
        Ok(Self { file, process: std::process::id() })
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.file
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if std::process::id() == self.process {
            // If this fails, closing the file unlocks it, once all children have closed it.
            let _ = self.file.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another handle of the same opening shares its lock, as that of a forked child does.
    #[test]
    fn a_handle_that_a_child_inherited_keeps_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let open = || File::create(folder.path().join("lock")).unwrap();
        let locked = LockedFile::lock(open()).unwrap();
        let inherited = locked.try_clone().unwrap();
        assert!(matches!(LockedFile::lock(open()), Err(TryLockError::WouldBlock)));
        // As the child would drop it.
        drop(LockedFile { file: locked.try_clone().unwrap(), process: locked.process.wrapping_add(1) });
        assert!(matches!(LockedFile::lock(open()), Err(TryLockError::WouldBlock)));
        drop(locked);
        assert!(LockedFile::lock(open()).is_ok());
        drop(inherited);
    }
}
