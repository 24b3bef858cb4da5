//! Small files outside the database, shared by all its coordinators: release keys, and ends of privacy ledgers.
//!
//! Backups exclude them: a restored database is verified against them, and copies must not open their sealed data. They are in a folder, or
//! in a bucket for machines without a common folder.

mod bucket;
mod folder;

use std::collections::BTreeMap;
use std::path::PathBuf;

use listener::PoisonFreeMutex;
use store::Result;
use zeroize::Zeroizing;

pub(crate) use self::bucket::{Bucket, BucketFolder};
pub(crate) use self::folder::Bytes;
use self::folder::FileFolder;

/// Files of one kind. Every call waits for a disk or a network: use a blocking thread.
pub(crate) enum SecretStore {
    Folder(FileFolder),
    Bucket(BucketFolder),
    Memory(PoisonFreeMutex<BTreeMap<String, Bytes>>),
}

impl SecretStore {
    /// A store in this folder, created on demand.
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self::Folder(FileFolder::new(folder))
    }

    pub(crate) fn in_memory() -> Self {
        Self::Memory(PoisonFreeMutex::default())
    }

    /// Reads a file; `None` if missing.
    ///
    /// # Errors
    /// Errors of the storage.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Bytes>> {
        match self {
            Self::Folder(folder) => Ok(folder.read(name)?),
            Self::Bucket(bucket) => bucket.read(name),
            Self::Memory(files) => Ok(files.lock().get(name).cloned()),
        }
    }

    /// Creates a file with a new name, durably. After an error the file is undefined, and its name must not be reused.
    ///
    /// # Errors
    /// Errors of the storage.
    pub(crate) fn create(&self, name: &str, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Folder(folder) => Ok(folder.create(name, bytes)?),
            Self::Bucket(bucket) => bucket.create(name, bytes),
            Self::Memory(files) => {
                files.lock().insert(name.to_owned(), Zeroizing::new(bytes.to_vec()));
                Ok(())
            }
        }
    }

    /// Atomically replaces a file by the result of `judge` on its current bytes; `None` keeps it. Calls `judge` again after a concurrent
    /// replacement.
    ///
    /// # Errors
    /// Errors of the storage; `BlobsAway` under persistent contention.
    pub(crate) fn replace(
        &self,
        name: &str,
        mut judge: impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>>,
    ) -> Result<()> {
        match self {
            Self::Folder(folder) => folder.replace(name, judge),
            Self::Bucket(bucket) => bucket.replace(name, judge),
            Self::Memory(files) => {
                let mut files = files.lock();
                if let Some(bytes) = judge(files.get(name).map(|bytes| bytes.as_slice()))? {
                    files.insert(name.to_owned(), Zeroizing::new(bytes));
                }
                Ok(())
            }
        }
    }

    /// Overwrites these files with zeros and removes them, before it returns. Remnants on the storage medium are out of its reach.
    ///
    /// # Errors
    /// Errors of the storage; some files may already be destroyed.
    pub(crate) fn destroy(&self, names: &[String]) -> Result<()> {
        match self {
            Self::Folder(folder) => Ok(folder.destroy(names)?),
            Self::Bucket(bucket) => bucket.destroy(names),
            Self::Memory(files) => {
                let mut files = files.lock();
                names.iter().for_each(|name| drop(files.remove(name)));
                Ok(())
            }
        }
    }

    /// Checks again whether the storage keeps deleted versions. If so, logs an error, and refuses to create or destroy files.
    pub(crate) fn look_for_versions(&self) {
        match self {
            Self::Bucket(bucket) => bucket.look_for_versions(),
            Self::Folder(_) | Self::Memory(_) => {}
        }
    }

    /// Checks, by the last result, that destroyed files are gone.
    ///
    /// # Errors
    /// `BlobsAway` with the reason.
    pub(crate) fn destroys(&self) -> Result<()> {
        match self {
            Self::Bucket(bucket) => bucket.destroys(),
            Self::Folder(_) | Self::Memory(_) => Ok(()),
        }
    }

    /// Names of all files.
    ///
    /// # Errors
    /// Errors of the storage.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        match self {
            Self::Folder(folder) => Ok(folder.names()?),
            Self::Bucket(bucket) => bucket.names(),
            Self::Memory(files) => Ok(files.lock().keys().cloned().collect()),
        }
    }

    /// The location of a file, for operators.
    pub(crate) fn place(&self, name: &str) -> String {
        match self {
            Self::Folder(folder) => folder.path().join(name).display().to_string(),
            Self::Bucket(bucket) => bucket.place(name),
            Self::Memory(_) => format!("memory/{name}"),
        }
    }
}
