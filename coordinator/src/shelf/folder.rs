//! A folder of small files, which several processes may share if it can lock.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use store::Result;
use zeroize::Zeroizing;

/// Locked by whoever replaces a file.
const LOCK: &str = "lock";

/// What a file holds.
pub(crate) type Bytes = Zeroizing<Vec<u8>>;

/// Files in a folder, each its owner's alone.
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

    /// Nobody else replaces a file between the look at the present one and the end, so that a slow writer takes no file back.
    pub(super) fn replace(
        &self,
        name: &str,
        mut judge: impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>>,
    ) -> Result<()> {
        let _alone = crate::files::alone(&self.0.join(LOCK))?;
        let present = self.read(name)?;
        if let Some(bytes) = judge(present.as_ref().map(|bytes| bytes.as_slice()))? {
            crate::files::write_new(&self.0.join(name), &bytes)?;
        }
        Ok(())
    }

    /// The folder is flushed at the end: a file comes and goes for good only once its folder is on disk.
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
