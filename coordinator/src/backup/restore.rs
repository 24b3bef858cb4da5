//! Restores a backup for a stopped coordinator.
//!
//! Everything is verified before any change. While files are moved, a marker file next to the database prevents a
//! coordinator from starting.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use ring::hmac;
use store::{BlobStore, Blobs, Database, Store, StoreConfig, StoreError};

use super::contents::copy_blob;
use super::ledgers::{LedgerStanding, examine};
use super::manifest::{Manifest, blobs_folder, measure};
use super::take::sync;
use super::{BackupError, OnProgress, PausedTask, Places, Progress, RestoreReport, Stage};
use crate::maintenance::damage::is_damage;
use crate::privacy::seal::Sealer;

/// Suffixes of the files next to a SQLite database.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The marker of an unfinished restore, next to the database.
pub(crate) fn restoring(database: &Path) -> PathBuf {
    beside(database, ".restoring")
}

#[derive(Clone, Copy)]
pub(crate) enum Trusted<'k> {
    /// Only backups authenticated with this key; without a key, rejects all.
    Authenticated(Option<&'k hmac::Key>),
    /// Any backup: the operator trusts its origin.
    Any,
}

/// Restores the backup in `folder` to `to`; the caller holds the locks. With `replace`, an existing database is kept under another name.
/// Pauses the private tasks whose ledger the `sealer` does not confirm; without a sealer, all private tasks.
///
/// # Errors
/// [`BackupError`]; after [`BackupError::Io`] and [`BackupError::Store`] it must be repeated before a coordinator starts.
pub(crate) async fn restore(
    to: &Places,
    folder: &Path,
    replace: bool,
    trusted: Trusted<'_>,
    sealer: Option<&Arc<Sealer>>,
    on_progress: OnProgress<'_>,
) -> Result<RestoreReport, BackupError> {
    let database = &to.database;
    let (manifest, mark) = (Manifest::read(folder)?, restoring(database));
    match trusted {
        Trusted::Authenticated(key) => manifest.authenticate(folder, key)?,
        Trusted::Any => {}
    }
    // Permission for an interrupted restore covers its repetition.
    if database.exists() && !replace && !mark.exists() {
        return Err(BackupError::Occupied(database.clone()));
    }
    if matches!(to.blobs, Blobs::Memory) {
        return Err(BackupError::InMemory("blobs.url"));
    }
    let kept = Blobs::Disk(blobs_folder(folder)).open(Arc::clone(&to.clock)).await?;
    verify(&manifest, folder, &*kept, on_progress).await?;

    let blobs = to.blobs.clone().open(Arc::clone(&to.clock)).await?;
    let copied = put_blobs(&manifest, &*kept, &*blobs, on_progress).await?;
    let now = to.clock.now();
    let draft = beside(database, ".restored");
    copy_rows(&manifest, folder, &draft)?;
    let paused = prepare_rows(&draft, to, sealer, now).await?;

    fs::write(&mark, "").map_err(BackupError::at(&mark))?;
    sync(parent(database))?;
    let replaced = put_aside(database, now)?;
    fs::rename(&draft, database).map_err(BackupError::at(database))?;
    sync(parent(database))?;
    fs::remove_file(&mark).map_err(BackupError::at(&mark))?;
    sync(parent(database))?;
    let (made_at, blobs, lacks) = (manifest.made_at, manifest.blobs.len(), manifest.lacks);
    Ok(RestoreReport { made_at, blobs, copied, replaced, lacks, paused })
}

/// Verifies every file of the backup.
async fn verify(
    manifest: &Manifest,
    folder: &Path,
    kept: &dyn BlobStore,
    on_progress: OnProgress<'_>,
) -> Result<(), BackupError> {
    let mut damaged = Vec::new();
    let file = manifest.rows_file(folder);
    match measure(&file) {
        Ok(entry) if entry == manifest.rows => {}
        Ok(_) => damaged.push(format!("{} has another SHA-256 than its name", file.display())),
        Err(BackupError::Io { source, .. })
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) =>
        {
            damaged.push(format!("{} is missing, or is not a regular file", file.display()));
        }
        Err(error) => return Err(error),
    }
    let of = manifest.blobs.len() as u64;
    for (done, entry) in (1..).zip(&manifest.blobs) {
        match kept.open_verified(entry.sha256).await {
            Ok(blob) if blob.size() == entry.bytes => {}
            Ok(_) => damaged.push(format!("blob {} has another size than the manifest says", entry.sha256)),
            Err(error) if is_damage(&error) => damaged.push(error.to_string()),
            Err(error) => return Err(error.into()),
        }
        on_progress(Progress { stage: Stage::Check, done, of });
    }
    if damaged.is_empty() { Ok(()) } else { Err(BackupError::Damaged(damaged)) }
}

/// Copies the missing and damaged blobs, and returns their number. Hard links are avoided: changes to a coordinator's files must not affect
/// the backup.
async fn put_blobs(
    manifest: &Manifest,
    kept: &dyn BlobStore,
    blobs: &dyn BlobStore,
    on_progress: OnProgress<'_>,
) -> Result<usize, StoreError> {
    let (mut copied, of) = (0, manifest.blobs.len() as u64);
    for (done, entry) in (1..).zip(&manifest.blobs) {
        match blobs.open_verified(entry.sha256).await {
            Ok(_) => {}
            Err(error) if is_damage(&error) => {
                copy_blob(kept, blobs, entry.sha256).await?;
                copied += 1;
            }
            Err(error) => return Err(error),
        }
        on_progress(Progress { stage: Stage::Blobs, done, of });
    }
    Ok(copied)
}

fn copy_rows(manifest: &Manifest, folder: &Path, draft: &Path) -> Result<(), BackupError> {
    remove_database(draft)?;
    let file = manifest.rows_file(folder);
    let copy = || {
        store::private::make_folder(parent(draft))?;
        let mut to = store::private::options().write(true).create_new(true).open(draft)?;
        std::io::copy(&mut store::private::open_regular(&file)?, &mut to)?;
        to.sync_all()
    };
    copy().map_err(BackupError::at(draft))
}

/// Migrates the copied rows to this program's schema, and pauses the private tasks with unconfirmed ledgers.
async fn prepare_rows(
    draft: &Path,
    to: &Places,
    sealer: Option<&Arc<Sealer>>,
    now: Timestamp,
) -> Result<Vec<PausedTask>, BackupError> {
    let (database, clock) = (Database::SqliteFile(draft.to_owned()), Arc::clone(&to.clock));
    let store = Store::open(StoreConfig { database, blobs: Blobs::Memory, connections: 1, clock }).await?;
    let mut paused = Vec::new();
    for (task, why) in doubted(&store, sealer).await? {
        let (id, why) = (task.id, format!("restored from a backup: {why}"));
        let detail = why.as_str();
        let pause = store.transact("pause task", |tx| {
            let (from, to) = ([TaskStatus::Active], TaskStatus::Paused);
            Box::pin(async move { tx.set_task_status(id, &from, to, now, Some(detail)).await })
        });
        pause.await?;
        paused.push(PausedTask { task: id, name: task.spec.name, why });
    }
    store.empty_log().await?;
    drop(store);
    // The log is empty, and the draft is moved without it.
    for ending in BESIDE {
        remove(&beside(draft, ending))?;
    }
    Ok(paused)
}

async fn doubted(
    store: &Store,
    sealer: Option<&Arc<Sealer>>,
) -> Result<Vec<(store::entity::task::TaskRow, String)>, StoreError> {
    const ASK: &str = "releases after the backup cannot be ruled out: put seal.key and seal.ledgers/ back, then resume the task; or \
                       cancel it";
    let Some(sealer) = sealer else {
        let unfinished = store.read("tasks", |tx| Box::pin(async move { tx.unfinished_tasks().await })).await?;
        let private = unfinished.into_iter().filter(|task| task.spec.privacy.is_private());
        return Ok(private
            .map(|task| (task, format!("there is no sealing key to check its privacy ledger with, so {ASK}")))
            .collect());
    };
    let examined = examine(store, sealer).await?.into_iter();
    Ok(examined
        .filter(|(task, _)| !task.status.is_terminal())
        .filter_map(|(task, standing)| match standing {
            LedgerStanding::Fits => None,
            LedgerStanding::Wrong(why) => Some((task, why)),
        })
        .collect())
}

/// Renames an existing database and its log. Returns the new path.
fn put_aside(database: &Path, now: Timestamp) -> Result<Option<PathBuf>, BackupError> {
    if !database.exists() {
        for ending in BESIDE {
            remove(&beside(database, ending))?;
        }
        return Ok(None);
    }
    let aside = beside(database, &format!(".replaced-{}", now.0));
    for ending in BESIDE.into_iter().chain([""]) {
        let (from, to) = (beside(database, ending), beside(&aside, ending));
        if from.exists() {
            fs::rename(&from, &to).map_err(BackupError::at(&from))?;
        }
    }
    Ok(Some(aside))
}

fn remove_database(path: &Path) -> Result<(), BackupError> {
    BESIDE.into_iter().chain([""]).try_for_each(|ending| remove(&beside(path, ending)))
}

fn remove(path: &Path) -> Result<(), BackupError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(BackupError::at(path)(error)),
        _ => Ok(()),
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.to_owned();
    path.as_mut_os_string().push(ending);
    path
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
