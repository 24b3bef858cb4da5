//! Blobs as files: `xx/<digest>` below one folder, where `xx` are the first two digits of the digest.
//!
//! A blob is written to `tmp/`, flushed, renamed into its place, and its folder flushed; a file under its digest is
//! therefore always whole. Each process with the folder open holds a shared lock on it; leftovers of unfinished writers
//! are removed by the next process that opens it alone. A file's modification time is the time, by the store's clock,
//! when the blob was last stored.

use std::fs::{self, File, FileTimes};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::Digest;
use federation::time::{Clock, Timestamp};

use super::spool::{FileRead, Spool, Spooled, Unfinished, blocking};
use super::trusted::{Identity, Verdicts};
use super::{BlobRead, BlobStore, BlobWriter, VerifiedRead, check_expected, sha256};
use crate::error::{Result, StoreError};
use crate::private;

/// Bytes that are read at once to verify a file.
const PIECE: usize = 64 << 10;
/// Folder of unfinished blobs.
const TEMPORARY: &str = "tmp";
/// File with a shared lock of every process that may have unfinished blobs.
const LOCK: &str = "lock";

/// The file of a blob in a folder of blobs.
#[must_use]
pub fn place_of(folder: &Path, digest: Digest) -> PathBuf {
    let name = digest.to_string();
    folder.join(&name[..2]).join(name)
}

/// Blobs below a folder. Clones share it.
#[derive(Clone)]
pub(crate) struct DiskBlobs {
    folder: Arc<PathBuf>,
    /// Numbers the unfinished files of this process.
    serial: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
    /// Held while a file is renamed into place, and while its age decides whether it is removed.
    naming: Arc<Mutex<()>>,
    /// Results of earlier verifications.
    verdicts: Verdicts,
    /// Held while a file is verified, so that others wait instead of reading it too.
    verifying: Arc<tokio::sync::Mutex<()>>,
    /// Marks for other processes that there may be unfinished files.
    _lock: Arc<File>,
}

impl DiskBlobs {
    /// Opens the folder, creates missing parts and removes leftovers of unfinished writers.
    pub(crate) async fn open(folder: PathBuf, clock: Arc<dyn Clock>) -> Result<Self> {
        blocking(move || {
            let lock = Arc::new(prepare(&folder)?);
            Ok(Self {
                folder: Arc::new(folder),
                serial: Arc::default(),
                clock,
                naming: Arc::default(),
                verdicts: Verdicts::default(),
                verifying: Arc::default(),
                _lock: lock,
            })
        })
        .await
    }

    fn path(&self, digest: Digest) -> PathBuf {
        place_of(&self.folder, digest)
    }

    fn unfinished(&self) -> io::Result<Unfinished> {
        loop {
            let serial = self.serial.fetch_add(1, Ordering::Relaxed);
            let path = self.folder.join(TEMPORARY).join(serial.to_string());
            match private::options().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Unfinished { file, path }),
                // Another process, or another store in this one, has taken the number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the file durable under its digest.
    fn keep(&self, unfinished: Unfinished, digest: Digest) -> Result<()> {
        unfinished.file.set_times(FileTimes::new().set_modified(to_system(self.clock.now())))?;
        unfinished.file.sync_all()?;
        let path = self.path(digest);
        match self.name(&unfinished, &path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The first blob in its folder. There are 256 folders, so this is rare.
                self.make_folder(&path)?;
                self.name(&unfinished, &path)?;
            }
            result => result?,
        }
        flush_parent(&path)?;
        // The digest was computed from the written bytes.
        self.verdicts.remember(digest, Identity::of(&unfinished.file.metadata()?), true);
        Ok(())
    }

    /// A file for bytes that are not to be a blob here.
    pub(super) async fn spool(&self) -> Result<Spool> {
        let blobs = self.clone();
        blocking(move || Ok(Spool::new(blobs.unfinished()?))).await
    }

    /// Opens the file, and returns its identity and any known verdict.
    fn look(&self, digest: Digest) -> Result<(FileRead, Identity, Option<bool>)> {
        let file = private::open_regular(&self.path(digest)).map_err(|error| missing(error, &self.folder, digest))?;
        let metadata = file.metadata()?;
        let identity = Identity::of(&metadata);
        let known = self.verdicts.of(digest, identity);
        Ok((FileRead { file, size: metadata.len(), is_known: false }, identity, known))
    }

    /// Opens the file, and verifies it unless its state is known.
    fn look_closely(&self, digest: Digest) -> Result<FileRead> {
        let (read, identity, known) = self.look(digest)?;
        let is_whole = match known {
            Some(is_whole) => is_whole,
            None => {
                let is_whole = is_blob(&read.file, digest)?;
                // If the file was touched in between, its identity differs and it is verified again.
                self.verdicts.remember(digest, identity, is_whole);
                is_whole
            }
        };
        if is_whole { Ok(read) } else { Err(other_bytes(digest)) }
    }

    /// Renames the file into place. An existing blob is replaced by its equal, which resets its age.
    fn name(&self, unfinished: &Unfinished, path: &Path) -> io::Result<()> {
        let _naming = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
        fs::rename(&unfinished.path, path)
    }

    fn make_folder(&self, blob: &Path) -> io::Result<()> {
        if let Some(folder) = blob.parent() {
            private::make_folder(folder)?;
        }
        private::flush_folder(&self.folder)
    }
}

#[async_trait]
impl BlobStore for DiskBlobs {
    async fn put_bytes(&self, bytes: Bytes) -> Result<Digest> {
        let blobs = self.clone();
        blocking(move || {
            let digest = sha256(&bytes);
            let mut unfinished = blobs.unfinished()?;
            unfinished.file.write_all(&bytes)?;
            blobs.keep(unfinished, digest)?;
            Ok(digest)
        })
        .await
    }

    async fn writer(&self) -> Result<Box<dyn BlobWriter>> {
        Ok(Box::new(DiskWriter { blobs: self.clone(), spool: self.spool().await? }))
    }

    async fn open(&self, digest: Digest) -> Result<Box<dyn BlobRead>> {
        let (path, folder) = (self.path(digest), Arc::clone(&self.folder));
        blocking(move || {
            let file = private::open_regular(&path).map_err(|error| missing(error, &folder, digest))?;
            let size = file.metadata()?.len();
            Ok(Box::new(FileRead { file, size, is_known: false }) as Box<dyn BlobRead>)
        })
        .await
    }

    async fn open_known(&self, digest: Digest) -> Result<Box<dyn BlobRead>> {
        let blobs = self.clone();
        let (read, _, known) = blocking(move || blobs.look(digest)).await?;
        Ok(Box::new(FileRead { is_known: known == Some(true), ..read }))
    }

    async fn open_verified(&self, digest: Digest) -> Result<Box<dyn BlobRead>> {
        let blobs = self.clone();
        let (read, _, known) = blocking(move || blobs.look(digest)).await?;
        match known {
            Some(true) => return Ok(Box::new(read)),
            Some(false) => return Err(other_bytes(digest)),
            None => drop(read),
        }
        let _one_reads = self.verifying.lock().await;
        let blobs = self.clone();
        Ok(Box::new(blocking(move || blobs.look_closely(digest)).await?))
    }

    async fn get(&self, digest: Digest) -> Result<Bytes> {
        let (path, folder) = (self.path(digest), Arc::clone(&self.folder));
        blocking(move || {
            let mut file = private::open_regular(&path).map_err(|error| missing(error, &folder, digest))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            if sha256(&bytes) == digest { Ok(bytes.into()) } else { Err(other_bytes(digest)) }
        })
        .await
    }

    async fn len(&self, digest: Digest) -> Result<Option<u64>> {
        let path = self.path(digest);
        blocking(move || match fs::metadata(&path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        })
        .await
    }

    async fn delete(&self, digest: Digest) -> Result<bool> {
        let path = self.path(digest);
        blocking(move || remove(&path)).await
    }

    async fn collect(&self, digest: Digest, age: Duration) -> Result<bool> {
        let (path, naming, now) = (self.path(digest), Arc::clone(&self.naming), self.clock.now());
        blocking(move || {
            let _naming = naming.lock().unwrap_or_else(PoisonError::into_inner);
            match fs::metadata(&path) {
                Ok(metadata) if now.since(from_system(metadata.modified()?)) >= age => remove(&path),
                Ok(_) => Ok(false),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    async fn list(&self, age: Duration) -> Result<Vec<Digest>> {
        let (folder, now) = (Arc::clone(&self.folder), self.clock.now());
        blocking(move || {
            let mut found = Vec::new();
            for first in 0..=u8::MAX {
                list_folder(&folder.join(hex::encode([first])), |at| now.since(at) >= age, &mut found)?;
            }
            Ok(found)
        })
        .await
    }
}

fn other_bytes(digest: Digest) -> StoreError {
    StoreError::corrupt(format!("the file of blob {digest} holds other bytes"))
}

/// Verifies the digest of a file; rewinds it.
fn is_blob(file: &File, digest: Digest) -> Result<bool> {
    let mut file = file.try_clone()?;
    let size = file.metadata()?.len();
    let mut blob = VerifiedRead::new(Box::new(FileRead { file: file.try_clone()?, size, is_known: false }), digest);
    let mut piece = vec![0; PIECE];
    let is_whole = loop {
        match blob.read(&mut piece) {
            Ok(0) => break true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => break false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    };
    file.rewind()?;
    Ok(is_whole)
}

/// Not flushed: a blob that reappears after a power cut is garbage again.
fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn list_folder(folder: &Path, is_old: impl Fn(Timestamp) -> bool, found: &mut Vec<Digest>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        // Ignores files that are not named like a blob.
        let Some(digest) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match entry.metadata() {
            Ok(metadata) if is_old(from_system(metadata.modified()?)) => found.push(digest),
            Ok(_) => {}
            // Deleted since the folder was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

struct DiskWriter {
    blobs: DiskBlobs,
    spool: Spool,
}

#[async_trait]
impl BlobWriter for DiskWriter {
    async fn write(&mut self, chunk: Bytes) -> Result<()> {
        self.spool.append(chunk).await
    }

    async fn finish(self: Box<Self>, expected: Option<Digest>) -> Result<(Digest, u64)> {
        let blobs = self.blobs;
        let keep = move |digest, spooled: Spooled| {
            check_expected(digest, expected)?;
            blobs.keep(spooled.unfinished, digest)?;
            Ok((digest, spooled.bytes))
        };
        self.spool.finish(keep).await
    }
}

/// Creates the folders and returns the lock.
fn prepare(folder: &Path) -> Result<File> {
    let temporary = folder.join(TEMPORARY);
    private::make_folder(&temporary)?;
    // A user with access to the folder had access to these too.
    if private::tighten(folder)? {
        tighten_all(folder)?;
    }
    private::regular_or_missing(&folder.join(LOCK))?;
    let lock = private::options().write(true).create(true).truncate(false).open(folder.join(LOCK))?;
    if lock.try_lock().is_ok() {
        let mut unfinished = 0_u64;
        for entry in fs::read_dir(&temporary)? {
            fs::remove_file(entry?.path())?;
            unfinished += 1;
        }
        if unfinished > 0 {
            tracing::info!(unfinished, "removed {unfinished} unfinished blobs that a process left");
        }
        lock.unlock()?;
    }
    lock.lock_shared()?;
    private::flush_folder(folder)?;
    flush_parent(folder)?;
    Ok(lock)
}

/// Two levels: the folders of blobs, and the blobs.
fn tighten_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        private::tighten_if_there(&path)?;
        if path.is_dir() {
            for blob in fs::read_dir(&path)? {
                private::tighten_if_there(&blob?.path())?;
            }
        }
    }
    Ok(())
}

fn flush_parent(path: &Path) -> io::Result<()> {
    private::flush_folder(path.parent().unwrap_or(Path::new("")))
}

/// A missing file is a lost blob, unless the whole folder is missing, such as an unmounted disk: then the operation can
/// be retried. A path that is not a regular file is a damaged blob.
fn missing(error: io::Error, folder: &Path, digest: Digest) -> StoreError {
    if error.kind() == io::ErrorKind::NotFound && folder.join(LOCK).exists() {
        StoreError::MissingBlob(digest)
    } else if error.kind() == io::ErrorKind::InvalidData {
        StoreError::corrupt(format!("the file of blob {digest}: {error}"))
    } else {
        error.into()
    }
}

fn to_system(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or(0))
}

fn from_system(at: SystemTime) -> Timestamp {
    Timestamp(0).plus(at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use federation::time::MockClock;

    use super::*;

    #[cfg(unix)]
    #[tokio::test]
    async fn a_pipe_in_the_place_of_a_blob_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = DiskBlobs::open(folder.path().to_owned(), Arc::new(MockClock::new(Timestamp(1)))).await.unwrap();
        let digest = blobs.put_bytes("some bytes".into()).await.unwrap();
        let path = place_of(folder.path(), digest);
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        for result in [blobs.open(digest).await.map(drop), blobs.open_verified(digest).await.map(drop)] {
            assert!(
                matches!(&result, Err(StoreError::Corrupt(why)) if why.to_string().contains("regular")),
                "{result:?}"
            );
        }
        assert!(matches!(blobs.get(digest).await, Err(StoreError::Corrupt(_))));
    }

    #[tokio::test]
    async fn a_blob_is_known_to_who_stored_it_until_its_file_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(MockClock::new(Timestamp(1)));
        let open = || DiskBlobs::open(folder.path().to_owned(), clock.clone());
        let blobs = open().await.unwrap();
        let digest = blobs.put_bytes("some bytes".into()).await.unwrap();
        assert!(blobs.open_known(digest).await.unwrap().cannot_have_changed());
        assert!(!blobs.open(digest).await.unwrap().cannot_have_changed(), "it is to be verified");
        // The modification time is the store's, in 1970; writing changes it.
        fs::write(place_of(folder.path(), digest), "Some bytes").unwrap();
        assert!(!blobs.open_known(digest).await.unwrap().cannot_have_changed());
        let again = blobs.put_bytes("some bytes".into()).await.unwrap();
        assert!(blobs.open_known(again).await.unwrap().cannot_have_changed());
        assert!(!open().await.unwrap().open_known(digest).await.unwrap().cannot_have_changed(), "another process");
    }
}
