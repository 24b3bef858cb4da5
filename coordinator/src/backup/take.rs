//! Takes a backup, with or without a running coordinator.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use federation::id::Digest;
use ring::hmac;
use store::entity::blob_reference::BlobReference;
use store::{BlobStore, Blobs, Store, StoreError, copy_database};

use super::contents::{Folders, Moved, move_blob};
use super::manifest::{Entry, Manifest, blobs_folder, measure, rows_file, rows_folder};
use super::unmasked::unmasked_private_tasks;
use super::{BackupError, BackupReport, OnProgress, Places, Progress, Stage};
use crate::maintenance::damage::is_damage;
use crate::process::lock::Locks;

/// Maximum number of copies of the rows; each needs only the blobs added since the previous one.
const TRIES: u32 = 5;

/// Blobs referenced by a copy of the rows.
#[derive(Default)]
struct Contents {
    blobs: Vec<Entry>,
    reused: usize,
    linked: usize,
    copied: usize,
    /// Missing or damaged blobs.
    lacking: Vec<BlobReference>,
    /// Number of blobs excluded from backups.
    left_out: usize,
}

/// Backs up `from` into `folder`. An existing backup there is replaced at the end, and its blobs are reused. With `link`, blobs on the same
/// disk are hard-linked instead of copied. The manifest is authenticated with `key`. Blocks the thread.
///
/// # Errors
/// [`BackupError`]; the folder then keeps its earlier backup.
pub(crate) async fn take(
    from: &Places,
    folder: &Path,
    link: bool,
    key: Option<&hmac::Key>,
    on_progress: OnProgress<'_>,
) -> Result<BackupReport, BackupError> {
    if !from.database.exists() {
        return Err(BackupError::NoDatabase(from.database.clone()));
    }
    let made_at = from.clock.now();
    let _lock = Locks::take(&[folder.join("backup.lock")], made_at)?;
    // An unreadable manifest more likely means a wrong folder name than a backup.
    Manifest::find(folder)?;
    let folders = match &from.blobs {
        Blobs::Disk(source) if link => Some(Folders { from: source.clone(), to: blobs_folder(folder) }),
        Blobs::Disk(_) | Blobs::S3(_) | Blobs::Replicated { .. } => None,
        Blobs::Memory => return Err(BackupError::InMemory("blobs.url")),
    };
    let source = from.blobs.clone().open(Arc::clone(&from.clock)).await?;
    let kept = Blobs::Disk(blobs_folder(folder)).open(Arc::clone(&from.clock)).await?;
    let rows_folder = rows_folder(folder);
    store::private::make_folder(&rows_folder).map_err(BackupError::at(&rows_folder))?;
    let draft = rows_folder.join("draft");
    let contents = settle(from, &draft, &*source, &kept, folders.as_ref(), on_progress).await?;
    if contents.linked > 0 {
        sync_folders(&blobs_folder(folder))?;
    }

    let rows = measure(&draft)?;
    let file = rows_file(folder, &rows);
    fs::rename(&draft, &file).map_err(BackupError::at(&file))?;
    sync(&rows_folder)?;
    let lacks: Vec<_> = contents.lacking.iter().map(described).collect();
    let mut manifest = Manifest::new(made_at, rows, contents.blobs, lacks);
    if let Some(key) = key {
        manifest.sign(key)?;
    }
    manifest.write(folder)?;
    let removed = remove_others(&manifest, folder, &*kept).await?;
    Ok(BackupReport {
        made_at,
        rows_bytes: rows.bytes,
        blobs: manifest.blobs.len(),
        blobs_bytes: manifest.blobs.iter().map(|blob| blob.bytes).sum(),
        reused: contents.reused,
        linked: contents.linked,
        copied: contents.copied,
        removed,
        left_out: contents.left_out,
        lacks: manifest.lacks,
    })
}

/// Copies the rows to `draft`, then their blobs. A blob deleted in between was obsolete: then the rows are copied again.
async fn settle(
    from: &Places,
    draft: &Path,
    source: &dyn BlobStore,
    kept: &Arc<dyn BlobStore>,
    folders: Option<&Folders>,
    on_progress: OnProgress<'_>,
) -> Result<Contents, BackupError> {
    for _ in 0..TRIES {
        match fs::remove_file(draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(BackupError::at(draft)(error)),
            _ => {}
        }
        copy_database(&from.database, draft, |pages| {
            on_progress(Progress { stage: Stage::Rows, done: pages.done, of: pages.of });
        })?;
        let (needed, left_out) = needed(draft, kept).await?;
        let contents = collect(&needed, source, &**kept, folders, on_progress).await?;
        let contents = Contents { left_out, ..contents };
        if contents.lacking.is_empty() {
            return Ok(contents);
        }
        let live = Store::open_to_read(&from.database, Arc::clone(kept)).await?;
        let live = live.read("referenced blobs", |tx| Box::pin(async move { tx.referenced_blobs().await })).await?;
        if contents.lacking.iter().all(|reference| live.contains(&reference.digest)) {
            return Ok(contents);
        }
    }
    Err(BackupError::Restless(TRIES))
}

/// The blobs referenced by these rows, each once, and the number of excluded blobs.
async fn needed(
    rows: &Path,
    kept: &Arc<dyn BlobStore>,
) -> Result<(BTreeMap<Digest, BlobReference>, usize), StoreError> {
    let copy = Store::open_to_read(rows, Arc::clone(kept)).await?;
    let references = copy.read("blob references", |tx| Box::pin(async move { tx.blob_references().await })).await?;
    let unmasked = unmasked_private_tasks(&copy).await?;
    let (exposing, others): (Vec<_>, Vec<_>) = references.into_iter().partition(|reference| unmasked.expose(reference));
    Ok((others.into_iter().map(|reference| (reference.digest, reference)).collect(), exposing.len()))
}

async fn collect(
    needed: &BTreeMap<Digest, BlobReference>,
    source: &dyn BlobStore,
    kept: &dyn BlobStore,
    folders: Option<&Folders>,
    on_progress: OnProgress<'_>,
) -> Result<Contents, StoreError> {
    let mut contents = Contents::default();
    let of = needed.len() as u64;
    for (done, (digest, reference)) in (1..).zip(needed) {
        let digest = *digest;
        // Every named blob was verified when added.
        let there = kept.len(digest).await?.filter(|there| reference.bytes.is_none_or(|bytes| bytes == *there));
        if let Some(bytes) = there {
            contents.reused += 1;
            contents.blobs.push(Entry { sha256: digest, bytes });
        } else {
            match move_blob(source, kept, folders, digest).await {
                Ok(Moved::Linked) => contents.linked += 1,
                Ok(Moved::Copied) => contents.copied += 1,
                Err(error) if is_damage(&error) => {
                    contents.lacking.push(reference.clone());
                    continue;
                }
                Err(error) => return Err(error),
            }
            let bytes = kept.len(digest).await?.unwrap_or_default();
            contents.blobs.push(Entry { sha256: digest, bytes });
        }
        on_progress(Progress { stage: Stage::Blobs, done, of });
    }
    Ok(contents)
}

/// Removes files not listed in the manifest; returns their number.
async fn remove_others(manifest: &Manifest, folder: &Path, kept: &dyn BlobStore) -> Result<usize, BackupError> {
    let named: HashSet<_> = manifest.blobs.iter().map(|blob| blob.sha256).collect();
    let mut removed = 0;
    for digest in kept.list(Duration::ZERO).await? {
        if !named.contains(&digest) {
            removed += usize::from(kept.delete(digest).await?);
        }
    }
    let (rows, present) = (rows_folder(folder), manifest.rows_file(folder));
    for entry in fs::read_dir(&rows).map_err(BackupError::at(&rows))? {
        let path = entry.map_err(BackupError::at(&rows))?.path();
        if path != present {
            fs::remove_file(&path).map_err(BackupError::at(&path))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Describes a blob, for example "model version 3 of task …".
pub(crate) fn described(reference: &BlobReference) -> String {
    use store::entity::blob_reference::BlobUse;
    let BlobReference { digest, used_as, task, number, .. } = reference;
    match used_as {
        BlobUse::Model => format!("model version {number} of task {task} ({digest})"),
        BlobUse::OptimizerState => format!("the optimizer's state of model version {number} of task {task} ({digest})"),
        BlobUse::NoisedSum => format!("the released sum of round {number} of task {task} ({digest})"),
        BlobUse::PartialSum => format!("the partial sum of round {number} of task {task} ({digest})"),
        BlobUse::Input => format!("an input of round {number} of task {task} ({digest})"),
    }
}

/// Flushes a folder, which makes its names durable.
pub(super) fn sync(folder: &Path) -> Result<(), BackupError> {
    store::private::flush_folder(folder).map_err(BackupError::at(folder))
}

/// Flushes all folders of a blob store.
pub(super) fn sync_folders(blobs: &Path) -> Result<(), BackupError> {
    for entry in fs::read_dir(blobs).map_err(BackupError::at(blobs))? {
        let path = entry.map_err(BackupError::at(blobs))?.path();
        if path.is_dir() {
            sync(&path)?;
        }
    }
    sync(blobs)
}
