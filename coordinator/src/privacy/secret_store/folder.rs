//! A folder of small files; several processes may share it if its file system supports locks.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use store::Result;
use zeroize::Zeroizing;

/// Lock file for replacements.
const LOCK: &str = "lock";

/// The content of a file.
pub(crate) type Bytes = Zeroizing<Vec<u8>>;

/// Files in a folder, each accessible only to its owner.
pub(crate) struct FileFolder(PathBuf);

impl FileFolder {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn read(&self, name: &str) -> io::Result<Option<Bytes>> {
        match fs::read(self.0.join(name)) {
            Ok(bytes) => Ok(Some(Zeroizing::new(bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn create(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        store::private::make_folder(&self.0)?;
        let mut file = store::private::options().write(true).create_new(true).open(self.0.join(name))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        store::private::flush_folder(&self.0)
    }

    /// Replaces a file under the lock, so that a slow writer cannot undo a newer replacement.
    pub(super) fn replace(
        &self,
        name: &str,
        mut judge: impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>>,
    ) -> Result<()> {
        let _alone = crate::process::files::alone(&self.0.join(LOCK))?;
        let present = self.read(name)?;
        if let Some(bytes) = judge(present.as_ref().map(|bytes| bytes.as_slice()))? {
            crate::process::files::write_new(&self.0.join(name), &bytes)?;
        }
        Ok(())
    }

    /// Overwrites and removes files, then flushes the folder, which makes the removal durable.
    pub(super) fn destroy(&self, names: &[String]) -> io::Result<()> {
        for name in names {
            overwrite(&self.0.join(name))?;
        }
        if names.is_empty() { Ok(()) } else { store::private::flush_folder(&self.0) }
    }

    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let names = entries.map(|entry| Ok(entry?.file_name().into_string().unwrap_or_default()));
        names.collect()
    }
}

fn overwrite(path: &Path) -> io::Result<()> {
    let mut file = match fs::OpenOptions::new().write(true).open(path) {
        Ok(file) => file,
        // Another process destroyed it first.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    file.write_all(&vec![0; bytes])?;
    file.sync_all()?;
    drop(file);
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
