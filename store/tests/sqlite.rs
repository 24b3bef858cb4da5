//! SQLite, in a file next to blobs on disk and in memory, passes the suite. Tests of a file alone: closing, damage, and
//! a newer program's schema.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use federation::time::{Clock, MockClock, Timestamp};
use store::conformance::NOW;
use store::{Blobs, Database, Store, StoreConfig, StoreError};
use tempfile::TempDir;

fn clock() -> Arc<dyn Clock> {
    Arc::new(MockClock::new(NOW))
}

fn in_folder(folder: &Path) -> StoreConfig {
    StoreConfig {
        database: Database::SqliteFile(folder.join("made/when/missing.sqlite")),
        blobs: Blobs::Disk(folder.join("blobs")),
        connections: 4,
        clock: clock(),
    }
}

mod memory {
    use super::*;

    async fn open() -> Option<(Store, ())> {
        let config =
            StoreConfig { database: Database::SqliteMemory, blobs: Blobs::Memory, connections: 1, clock: clock() };
        Some((Store::open(config).await.unwrap(), ()))
    }

    store::conformance_tests!(open);

    #[tokio::test]
    async fn ages_are_by_the_clock() {
        let (store, _keep) = open().await.unwrap();
        store::conformance::blob::ages_are_by_the_clock(&store).await;
    }
}

mod file {
    use super::*;

    async fn open() -> Option<(Store, TempDir)> {
        let folder = tempfile::tempdir().unwrap();
        Some((Store::open(in_folder(folder.path())).await.unwrap(), folder))
    }

    store::conformance_tests!(open);

    #[tokio::test]
    async fn ages_are_by_the_clock() {
        let (store, _keep) = open().await.unwrap();
        store::conformance::blob::ages_are_by_the_clock(&store).await;
    }
}

async fn take_lease(store: &Store, name: &'static str) -> Result<bool, StoreError> {
    let ttl = std::time::Duration::from_secs(1);
    store
        .transact("test", |tx| {
            Box::pin(async move { Ok(tx.acquire_lease(name, uuid::Uuid::nil(), Timestamp(0), ttl).await?.is_some()) })
        })
        .await
}

/// By the first token, for it is acquired once.
async fn holds_lease(store: &Store, name: &'static str) -> bool {
    let released: Result<bool, StoreError> =
        store.transact("test", |tx| Box::pin(async move { tx.release_lease(name, 1).await })).await;
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

    // The files after a kill: as they are now, with the log not yet merged into the database.
    let after_kill = tempfile::tempdir().unwrap();
    copy(folder.path(), after_kill.path());
    let temporary = after_kill.path().join("blobs/tmp");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 1);
    let store = Store::open(in_folder(after_kill.path())).await.unwrap();
    assert!(holds_lease(&store, "work").await);
    assert_eq!(store.blobs().get(address).await.unwrap(), "abc");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "leftovers are removed");
}

/// This loss is silent: docs/THREAT_MODEL.md states the other safeguards.
#[tokio::test]
async fn a_log_in_which_a_bit_was_changed_loses_its_end_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(in_folder(folder.path())).await.unwrap();
    assert!(take_lease(&store, "before").await.unwrap());
    let log = |folder: &Path| folder.join("made/when/missing.sqlite-wal");
    let length = std::fs::metadata(log(folder.path())).unwrap().len();
    assert!(take_lease(&store, "after").await.unwrap());
    let changed = tempfile::tempdir().unwrap();
    copy(folder.path(), changed.path());
    let mut bytes = std::fs::read(log(changed.path())).unwrap();
    // In the page of the next frame, behind its header.
    bytes[usize::try_from(length).unwrap() + 24 + 100] ^= 1;
    std::fs::write(log(changed.path()), bytes).unwrap();
    let store = Store::open(in_folder(changed.path())).await.unwrap();
    assert!(holds_lease(&store, "before").await);
    assert!(!holds_lease(&store, "after").await);
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

#[tokio::test]
async fn a_blob_is_verified_once_until_its_file_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(in_folder(folder.path())).await.unwrap();
    let address = store.blobs().put_bytes(Bytes::from(vec![7; 300_000])).await.unwrap();
    let name = address.to_string();
    let path = folder.path().join("blobs").join(&name[..2]).join(&name);
    let whole = std::fs::read(&path).unwrap();
    let read = async |store: &Store| {
        let mut blob = store.blobs().open_verified(address).await?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut blob, &mut bytes).unwrap();
        Ok::<_, StoreError>(bytes)
    };
    assert_eq!(read(&store).await.unwrap(), whole);
    let flip = |bit: u8| {
        let mut bytes = whole.clone();
        bytes[200_000] ^= bit;
        std::fs::write(&path, bytes).unwrap();
    };
    flip(1);
    for _ in 0..2 {
        let error = read(&store).await.unwrap_err();
        assert!(matches!(&error, StoreError::Corrupt(told) if told.to_string().contains(&name)), "{error}");
    }
    flip(0);
    assert_eq!(read(&store).await.unwrap(), whole, "restored where it was");
    // Another process has no verdict yet, so it finds damage done from outside.
    flip(1);
    drop(store);
    let store = Store::open(in_folder(folder.path())).await.unwrap();
    assert!(matches!(read(&store).await, Err(StoreError::Corrupt(_))));
    store.blobs().put_bytes(Bytes::from(whole.clone())).await.unwrap();
    assert_eq!(read(&store).await.unwrap(), whole, "stored once more");
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(read(&store).await, Err(StoreError::MissingBlob(found)) if found == address));
}

#[tokio::test]
async fn a_malformed_database_is_noticed_by_reading_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = in_folder(folder.path());
    let Database::SqliteFile(path) = config.database.clone() else { unreachable!() };
    let store = Store::open(config).await.unwrap();
    store.check().await.unwrap();
    drop(store);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let root: u32 =
        connection.query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'lease'", (), |row| row.get(0)).unwrap();
    drop(connection);
    let mut bytes = std::fs::read(&path).unwrap();
    let begin = (root as usize - 1) * 4096;
    bytes[begin..begin + 4096].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let store = Store::open(in_folder(folder.path())).await.unwrap();
    assert!(matches!(store.check().await, Err(StoreError::Corrupt(_))));
}

#[cfg(unix)]
#[tokio::test]
async fn everything_is_its_owners_alone_and_what_was_not_is_mended() {
    use std::os::unix::fs::PermissionsExt as _;

    fn walk(path: &Path, act: &mut dyn FnMut(&Path, u32)) {
        let metadata = std::fs::symlink_metadata(path).unwrap();
        if metadata.is_dir() {
            std::fs::read_dir(path).unwrap().for_each(|entry| walk(&entry.unwrap().path(), act));
        }
        act(path, metadata.permissions().mode() & 0o777);
    }
    async fn use_it(folder: &Path) -> Store {
        let store = Store::open(in_folder(folder)).await.unwrap();
        assert!(take_lease(&store, "work").await.unwrap());
        store.blobs().put_bytes(Bytes::from_static(b"abc")).await.unwrap();
        let mut unfinished = store.blobs().writer().await.unwrap();
        unfinished.write(Bytes::from(vec![1; 2 << 20])).await.unwrap();
        unfinished.finish(None).await.unwrap();
        store
    }
    let assert_private = |folder: &Path, files_at_least: usize| {
        let mut files = 0;
        walk(folder, &mut |path, mode| {
            let wanted = if path.is_dir() { 0o700 } else { 0o600 };
            files += usize::from(path.is_file());
            assert_eq!(mode, wanted, "{} has mode {mode:o}", path.display());
        });
        assert!(files >= files_at_least, "{files} files");
    };
    // The database, its log and that one's index; a lock and two blobs.
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("data");
    let store = use_it(&root).await;
    assert_private(&root, 6);

    // Leftovers of an earlier version, whose permissions follow the umask.
    walk(&root, &mut |path, _| {
        let wide = if path.is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(wide)).unwrap();
    });
    drop(store);
    let _store = use_it(&root).await;
    assert_private(&root.join("blobs"), 3);
    walk(&root.join("made/when"), &mut |path, mode| {
        assert!(path.is_dir() || mode == 0o600, "{} has mode {mode:o}", path.display());
    });
}
