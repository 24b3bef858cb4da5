//! Small files outside the database, which every coordinator over it uses: keys of releases, and ends of privacy ledgers.
//!
//! They are in no backup: a database that is put back is held against them, and what they open must not be opened by a copy. A
//! folder holds them, or a bucket, where several machines share no folder.

mod bucket;
mod folder;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use store::Result;
use zeroize::Zeroizing;

pub(crate) use self::bucket::{Bucket, BucketFolder};
pub(crate) use self::folder::Bytes;
use self::folder::FileFolder;
use crate::guarded::Guarded;

/// Files of one kind. Every call waits for a disk or a network: make it on a thread that may wait.
pub(crate) enum Shelf {
    Folder(FileFolder),
    Bucket(BucketFolder),
    Memory(Guarded<BTreeMap<String, Bytes>>),
}

impl Shelf {
    /// In this folder, created when needed.
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self::Folder(FileFolder::new(folder))
    }

    pub(crate) fn in_memory() -> Self {
        Self::Memory(Guarded::default())
    }

    /// A file's bytes; `None` if there is none.
    ///
    /// # Errors
    /// The place's.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Bytes>> {
        match self {
            Self::Folder(folder) => Ok(folder.read(name)?),
            Self::Bucket(bucket) => bucket.read(name),
            Self::Memory(files) => Ok(files.lock().get(name).cloned()),
        }
    }

    /// Creates a file whose name is new: durable when this returns. After an error nothing may rely on it, and its name must not be
    /// used again.
    ///
    /// # Errors
    /// The place's.
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

    /// Stores what `judge` makes of the present bytes, in their place and atomically; nothing if it makes nothing of them. It is asked
    /// again if another process was first.
    ///
    /// # Errors
    /// The place's; `BlobsAway` if others are first again and again.
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

    /// Overwrites these files with zeros and removes them: gone when this returns. What a medium keeps of overwritten bytes is
    /// beyond its reach.
    ///
    /// # Errors
    /// The place's; those that were reached are gone all the same.
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

    /// Looks whether the place keeps versions of what is destroyed, as at the start. From when it does, which an error tells, nothing
    /// is created or destroyed there.
    pub(crate) fn look_for_versions(&self) {
        match self {
            Self::Bucket(bucket) => bucket.look_for_versions(),
            Self::Folder(_) | Self::Memory(_) => {}
        }
    }

    /// Whether what is destroyed there is gone, as far as the place told when it was last asked.
    ///
    /// # Errors
    /// `BlobsAway`, which says why it is not.
    pub(crate) fn destroys(&self) -> Result<()> {
        match self {
            Self::Bucket(bucket) => bucket.destroys(),
            Self::Folder(_) | Self::Memory(_) => Ok(()),
        }
    }

    /// Names of all files.
    ///
    /// # Errors
    /// The place's.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        match self {
            Self::Folder(folder) => Ok(folder.names()?),
            Self::Bucket(bucket) => bucket.names(),
            Self::Memory(files) => Ok(files.lock().keys().cloned().collect()),
        }
    }

    /// The folder on this machine, if that is where it is.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match self {
            Self::Folder(folder) => Some(folder.path()),
            Self::Bucket(_) | Self::Memory(_) => None,
        }
    }

    /// Where a file is, for whoever has to look after it.
    pub(crate) fn place(&self, name: &str) -> String {
        match self {
            Self::Folder(folder) => folder.path().join(name).display().to_string(),
            Self::Bucket(bucket) => bucket.place(name),
            Self::Memory(_) => format!("memory/{name}"),
        }
    }
}
