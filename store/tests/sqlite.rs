//! SQLite, as a file beside blobs on disk and in memory, keeps every promise of the suite; and what only a file can be
//! asked: whether it survives being closed, damaged, or written by a newer program.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use federation::time::{Clock, MockClock, Timestamp};
use store::{Blobs, Database, Store, StoreConfig, StoreError};
use tempfile::TempDir;

/// The suite's `NOW`.
fn clock() -> Arc<dyn Clock> {
    Arc::new(MockClock::new(Timestamp(1_700_000_000_000)))
}

fn in_folder(folder: &Path) -> StoreConfig {
    StoreConfig {
        database: Database::SqliteFile(folder.join("made/when/missing.sqlite")),
        blobs: Blobs::Disk(folder.join("blobs")),
        clock: clock(),
    }
}

mod memory {
    use super::*;

    async fn open() -> (Store, ()) {
        let config = StoreConfig { database: Database::SqliteMemory, blobs: Blobs::Memory, clock: clock() };
        (Store::open(config).await.unwrap(), ())
    }

    store::conformance_tests!(open);
}

mod file {
    use super::*;

    async fn open() -> (Store, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        (Store::open(in_folder(folder.path())).await.unwrap(), folder)
    }

    store::conformance_tests!(open);
}

async fn take_lease(store: &Store, name: &'static str) -> Result<bool, StoreError> {
    let ttl = std::time::Duration::from_secs(1);
    store
        .transact("test", |tx| {
            Box::pin(async move { tx.acquire_lease(name, uuid::Uuid::nil(), Timestamp(0), ttl).await })
        })
        .await
}

async fn holds_lease(store: &Store, name: &'static str) -> bool {
    let released: Result<bool, StoreError> =
        store.transact("test", |tx| Box::pin(async move { tx.release_lease(name, uuid::Uuid::nil()).await })).await;
    released.unwrap()
}

#[tokio::test]
async fn what_was_committed_is_there_when_it_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(in_folder(folder.path())).await.unwrap();
    assert!(take_lease(&store, "work").await.unwrap());
    let address = store.blobs().put_bytes(Bytes::from_static(b"abc")).await.unwrap();
    drop(store);
    let store = Store::open(in_folder(folder.path())).await.unwrap();
    assert!(holds_lease(&store, "work").await);
    assert_eq!(store.blobs().get(address).await.unwrap(), "abc");
}

#[tokio::test]
async fn a_killed_process_loses_nothing_that_was_committed() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(in_folder(folder.path())).await.unwrap();
    assert!(take_lease(&store, "work").await.unwrap());
    let address = store.blobs().put_bytes(Bytes::from_static(b"abc")).await.unwrap();
    let mut unfinished = store.blobs().writer().await.unwrap();
    unfinished.write(Bytes::from(vec![1; 2 << 20])).await.unwrap();

    // What a kill leaves: the files as they are now, the log not yet merged into the database.
    let after_kill = tempfile::tempdir().unwrap();
    copy(folder.path(), after_kill.path());
    let temporary = after_kill.path().join("blobs/tmp");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 1);
    let store = Store::open(in_folder(after_kill.path())).await.unwrap();
    assert!(holds_lease(&store, "work").await);
    assert_eq!(store.blobs().get(address).await.unwrap(), "abc");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "leftovers are removed");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn a_second_store_spares_the_unfinished_blobs_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let first = Store::open(in_folder(folder.path())).await.unwrap();
    let mut writer = first.blobs().writer().await.unwrap();
    writer.write(Bytes::from_static(b"abc")).await.unwrap();
    let second = Store::open(in_folder(folder.path())).await.unwrap();
    let other = second.blobs().put_bytes(Bytes::from_static(b"def")).await.unwrap();
    let (address, _) = writer.finish(None).await.unwrap();
    assert_eq!(first.blobs().get(other).await.unwrap(), "def");
    assert_eq!(second.blobs().get(address).await.unwrap(), "abc");
    // Two processes write to one file, each in its turn.
    assert!(take_lease(&first, "a").await.unwrap());
    assert!(take_lease(&second, "b").await.unwrap());
    assert!(holds_lease(&first, "b").await);
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = in_folder(folder.path());
    let Database::SqliteFile(path) = config.database.clone() else { unreachable!() };
    drop(Store::open(config.clone()).await.unwrap());
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("INSERT INTO schema_version (version, name) VALUES (1000, 'future')").unwrap();
    let error = Store::open(config).await.err().unwrap();
    assert!(matches!(&error, StoreError::Schema(told) if told.contains("1000")), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = in_folder(folder.path());
    let Database::SqliteFile(path) = config.database.clone() else { unreachable!() };
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, vec![b'x'; 8192]).unwrap();
    assert!(matches!(Store::open(config).await, Err(StoreError::Corrupt(_))));
}

#[tokio::test]
async fn a_folder_that_is_not_mounted_has_lost_nothing() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(in_folder(folder.path())).await.unwrap();
    let digest = store.blobs().put_bytes(bytes::Bytes::from_static(b"input")).await.unwrap();
    let (mounted, away) = (folder.path().join("blobs"), folder.path().join("away"));
    std::fs::rename(&mounted, &away).unwrap();
    assert!(matches!(store.blobs().get(digest).await, Err(StoreError::Fault(_))));
    std::fs::rename(&away, &mounted).unwrap();
    assert_eq!(store.blobs().get(digest).await.unwrap().as_ref(), b"input");
}

#[tokio::test]
async fn a_blob_whose_file_was_changed_is_not_returned() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(in_folder(folder.path())).await.unwrap();
    let address = store.blobs().put_bytes(Bytes::from_static(b"abc")).await.unwrap();
    let name = address.to_string();
    std::fs::write(folder.path().join("blobs").join(&name[..2]).join(&name), "abd").unwrap();
    assert!(matches!(store.blobs().get(address).await, Err(StoreError::Corrupt(_))));
    // Storing it again mends it.
    store.blobs().put_bytes(Bytes::from_static(b"abc")).await.unwrap();
    assert_eq!(store.blobs().get(address).await.unwrap(), "abc");
}

#[tokio::test]
async fn what_is_cleared_or_deleted_leaves_no_trace_in_the_file() {
    const MARKER: &[u8] = b"a share that nobody may find";
    // Longer than a page, so that most of it lies in pages of its own, which are free afterwards.
    let bytes = MARKER.repeat(1_000);
    let folder = tempfile::tempdir().unwrap();
    let config = in_folder(folder.path());
    let Database::SqliteFile(path) = config.database.clone() else { unreachable!() };
    let store = Store::open(config).await.unwrap();
    store::conformance::session_message::remember(&store, &bytes).await;
    store::conformance::secret::remember(&store, &bytes).await;
    assert!(markers_in_files(&path, MARKER) > 4_500, "it was there");
    store::conformance::session_message::forget(&store).await;
    store::conformance::secret::forget(&store).await;
    assert_eq!(markers_in_files(&path, MARKER), 0);
}

/// How often `marker` occurs in the files of a database, once its log is merged.
fn markers_in_files(path: &Path, marker: &[u8]) -> usize {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let files =
        std::fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    files.map(|bytes| bytes.windows(marker.len()).filter(|window| *window == marker).count()).sum()
}
