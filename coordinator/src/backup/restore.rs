//! Puts a backup back where no coordinator works.
//!
//! Everything is verified before anything is changed. While files are moved there is a mark beside the database, and a coordinator does
//! not start from what lies there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use store::{BlobStore, Blobs, Database, Store, StoreConfig, StoreError};

use super::contents::copy_blob;
use super::ledgers::{LedgerStanding, examine};
use super::manifest::{Manifest, blobs_folder, measure};
use super::take::sync;
use super::{BackupError, OnProgress, PausedTask, Places, Progress, RestoreReport, Stage};
use crate::damage::is_damage;
use crate::ledger_end::LedgerEnds;
use crate::seal::Sealer;

/// What is beside a SQLite database.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The mark of a restore that has not ended, beside the database.
pub(crate) fn restoring(database: &Path) -> PathBuf {
    beside(database, ".restoring")
}

/// What tells an old database from the present one.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    /// The folder with the ends of ledgers, if they are in one. From a restore on, a ledger without an end there is missed, not
    /// believed.
    pub(crate) ends: Option<&'a LedgerEnds>,
    pub(crate) sealer: Option<&'a Arc<Sealer>>,
}

/// Makes the backup in `folder` the data at `to`, whose locks the caller holds. With `replace`, a database that is there is kept
/// under another name. Private tasks whose ledger is not `known` to be the present one are paused; without a sealer all of them.
///
/// # Errors
/// [`BackupError`]; after [`BackupError::Io`] and [`BackupError::Store`] it has to be run again before a coordinator starts.
pub(crate) async fn restore(
    to: &Places,
    folder: &Path,
    replace: bool,
    known: Known<'_>,
    on_progress: OnProgress<'_>,
) -> Result<RestoreReport, BackupError> {
    let database = &to.database;
    let (manifest, mark) = (Manifest::read(folder)?, restoring(database));
    // Whoever was cut off had the permission.
    if database.exists() && !replace && !mark.exists() {
        return Err(BackupError::Occupied(database.clone()));
    }
    if matches!(to.blobs, Blobs::Memory) {
        return Err(BackupError::InMemory("blobs.url"));
    }
    let kept = Blobs::Disk(blobs_folder(folder)).open(Arc::clone(&to.clock)).await?;
    verify(&manifest, folder, &*kept, on_progress).await?;

    if let Some(ends) = known.ends {
        ends.complete()?;
    }
    let blobs = to.blobs.clone().open(Arc::clone(&to.clock)).await?;
    let copied = put_blobs(&manifest, &*kept, &*blobs, on_progress).await?;
    let now = to.clock.now();
    let draft = beside(database, ".restored");
    copy_rows(&manifest, folder, &draft)?;
    let paused = prepare_rows(&draft, to, known.sealer, now).await?;

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

/// Reads every file of the backup.
async fn verify(
    manifest: &Manifest,
    folder: &Path,
    kept: &dyn BlobStore,
    on_progress: OnProgress<'_>,
) -> Result<(), BackupError> {
    let mut damaged = Vec::new();
    let file = manifest.rows_file(folder);
    if !file.exists() || measure(&file)? != manifest.rows {
        damaged.push(format!("{} is missing, or its SHA-256 is not its name", file.display()));
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

/// Copies the blobs that are not there, or damaged there; says how many. They are never linked: a backup must outlive what
/// happens to the files of a coordinator.
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
        std::io::copy(&mut fs::File::open(&file)?, &mut to)?;
        to.sync_all()
    };
    copy().map_err(BackupError::at(draft))
}

/// Brings the copied rows to this program's schema, and pauses the private tasks whose ledger is not confirmed.
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
    const ASK: &str =
        "releases after the backup cannot be ruled out; cancel the task, or resume it if you know that there were none";
    let Some(sealer) = sealer else {
        let unfinished = store.read("tasks", |tx| Box::pin(async move { tx.unfinished_tasks().await })).await?;
        let private = unfinished.into_iter().filter(|task| task.spec.privacy.is_private());
        return Ok(private
            .map(|task| (task, format!("there is no sealing key to check its privacy ledger with, so {ASK}")))
            .collect());
    };
    let examined = examine(store, sealer).await?.into_iter();
    Ok(examined
        .filter_map(|(task, standing)| match standing {
            LedgerStanding::Fits => None,
            LedgerStanding::Unconfirmed => {
                Some((task, format!("nothing is kept of its privacy ledger outside the database, so {ASK}")))
            }
            LedgerStanding::Wrong(why) => Some((task, why)),
        })
        .collect())
}

/// Gives the database another name, with its log. Says which.
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
